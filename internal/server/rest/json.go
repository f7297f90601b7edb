package rest

import (
	"bytes"
	"encoding/json"
	"io"

	"agentbox/internal/server/doors"
)

// unmarshal reads a body. What two readers could understand differently is
// refused. huma asks twice, first for any value, to check it against the schema,
// then for the type; and also then when the first answer was no.
func unmarshal(data []byte, v any) error {
	if err := doors.CheckJSON(data); err != nil {
		return err
	}
	any, first := v.(*any)
	if !first {
		return json.Unmarshal(data, v)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // some are too large for a float
	if err := d.Decode(any); err != nil {
		return err
	}
	*any = plain(*any)
	return nil
}

// marshal writes an answer. A client that is gone is no error of ours.
func marshal(w io.Writer, v any) error {
	if r, ok := v.(ExecResult); ok && r.kept != nil {
		if !r.kept.isSmall() {
			_ = r.writeJSON(w)
			return nil
		}
		v = r.within(firstBlock)
	}
	var b bytes.Buffer
	if err := encode(&b, v); err != nil {
		return err
	}
	_, _ = w.Write(b.Bytes())
	return nil
}
