package doors

import "net/http"

// FieldError is what is wrong with the form of one field. Its names are those
// that clients of other services look for.
type FieldError struct {
	Type  string `json:"type" doc:"What is wrong, for programs, such as missing or string_type."`
	Loc   []any  `json:"loc" doc:"Where: body, query or path, then names and positions."`
	Msg   string `json:"msg" doc:"What is wrong, in words."`
	Input any    `json:"input" doc:"What was sent there, if it is short."`
}

func (e *FieldError) Error() string { return e.Msg }

// FormProblem is the body of an error about a request's form: what is missing,
// unknown, or of the wrong type.
type FormProblem struct {
	Detail []*FieldError `json:"detail"`
}

func (p *FormProblem) Error() string { return p.Detail[0].Msg }

// GetStatus is the HTTP status.
func (p *FormProblem) GetStatus() int { return http.StatusUnprocessableEntity }
