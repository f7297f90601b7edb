package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one line of the table.
type row struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"` // "ms", "MB", "MB/s", "1/s", "share" or "x"
	Own    *figure `json:"agentbox"`
	Docker *figure `json:"docker,omitempty"`
	// Ratio is how many times better than Docker the median is.
	Ratio  float64 `json:"ratio,omitempty"`
	Budget string  `json:"budget,omitempty"`
	part   bool    // of the row above
}

// report is everything that one run found.
type report struct {
	Time     time.Time `json:"time"`
	Machine  machine   `json:"machine"`
	Agentbox string    `json:"agentbox"` // mode and versions
	Docker   string    `json:"docker"`   // version, or why there is none
	Rows     []row     `json:"rows"`
}

// add appends a row; docker may have no samples.
func (r *report) add(name, unit string, own, docker samples, budget string) {
	w := row{Name: strings.TrimPrefix(name, "- "), Unit: unit, Own: own.figure(), Docker: docker.figure(), Budget: budget, part: strings.HasPrefix(name, "- ")}
	if w.Own != nil && w.Docker != nil {
		w.Ratio = w.Docker.P50 / w.Own.P50
		if strings.HasSuffix(unit, "/s") { // more is better
			w.Ratio = 1 / w.Ratio
		}
	}
	r.Rows = append(r.Rows, w)
}

func (r *report) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s\n%s\nagentbox: %s\ndocker:   %s\n\n", r.Time.Format(time.RFC3339), r.Machine, r.Agentbox, r.Docker)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tunit\tp50\tp95\tn\tdocker p50\tp95\tn\tratio\tbudget")
	for _, w := range r.Rows {
		name := w.Name
		if w.part {
			name = "  " + name
		}
		ratio := ""
		if w.Ratio > 0 {
			ratio = fmt.Sprintf("%.1fx", w.Ratio)
		}
		digits := 1
		if w.Unit == "share" || w.Unit == "x" {
			digits = 2
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", name, w.Unit, w.Own.cells(digits), w.Docker.cells(digits), ratio, w.Budget)
	}
	return t.Flush()
}

// cells are the figure with so many digits behind the point.
func (f *figure) cells(digits int) string {
	if f == nil {
		return "-\t-\t-"
	}
	return fmt.Sprintf("%.*f\t%.*f\t%d", digits, f.P50, digits, f.P95, f.N)
}

func (r *report) save(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
