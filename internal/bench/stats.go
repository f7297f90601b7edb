package main

import (
	"math"
	"slices"
	"time"
)

// samples are measurements of one thing, in the unit of its row.
type samples []float64

func (s *samples) add(d time.Duration) { *s = append(*s, float64(d.Microseconds())/1000) }

// quantile is the smallest value that at least the share q of the samples does
// not exceed.
func (s samples) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// figure is a set of samples as it is reported.
type figure struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	Min float64 `json:"min"`
	N   int     `json:"n"`
}

func (s samples) figure() *figure {
	if len(s) == 0 {
		return nil
	}
	return &figure{P50: s.quantile(0.5), P95: s.quantile(0.95), Min: slices.Min(s), N: len(s)}
}
