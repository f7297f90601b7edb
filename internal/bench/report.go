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
	// Mkfs is set in place of Docker where root file systems are made.
	Mkfs *figure `json:"mkfs_erofs,omitempty"`
	// Ratio is how many times better than the other one's the median is.
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
	// Mkfs is the version of mkfs.erofs, or why there is none.
	Mkfs   string `json:"mkfs_erofs"`
	Rows   []row  `json:"rows"`
	Images []row  `json:"images"` // beside mkfs.erofs
}

// add appends a row; docker may have no samples.
func (r *report) add(name, unit string, own, docker samples, budget string) {
	w := newRow(name, unit, own, budget)
	w.Docker = docker.figure()
	r.Rows = append(r.Rows, w.compared())
}

// addImage appends a row about making root file systems; mkfs may have no
// samples.
func (r *report) addImage(name, unit string, own, mkfs samples) {
	w := newRow(name, unit, own, "")
	w.Mkfs = mkfs.figure()
	r.Images = append(r.Images, w.compared())
}

func newRow(name, unit string, own samples, budget string) row {
	return row{Name: strings.TrimPrefix(name, "- "), Unit: unit, Own: own.figure(), Budget: budget, part: strings.HasPrefix(name, "- ")}
}

// other is what the row is compared with.
func (w row) other() *figure {
	if w.Mkfs != nil {
		return w.Mkfs
	}
	return w.Docker
}

func (w row) compared() row {
	if other := w.other(); w.Own != nil && other != nil {
		w.Ratio = other.P50 / w.Own.P50
		if strings.HasSuffix(w.Unit, "/s") { // more is better
			w.Ratio = 1 / w.Ratio
		}
	}
	return w
}

func (r *report) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s\n%s\nagentbox: %s\ndocker:   %s\n\n", r.Time.Format(time.RFC3339), r.Machine, r.Agentbox, r.Docker)
	if err := table(out, "docker", r.Rows); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nroot file systems, beside mkfs.erofs: %s\n\n", r.Mkfs)
	return table(out, "mkfs.erofs", r.Images)
}

// table prints rows beside what they are compared with.
func table(out io.Writer, other string, rows []row) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\tunit\tp50\tp95\tn\t%s p50\tp95\tn\tratio\tbudget\n", other)
	for _, w := range rows {
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", name, w.Unit, w.Own.cells(digits), w.other().cells(digits), ratio, w.Budget)
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
