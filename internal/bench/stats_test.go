package main

import "testing"

func TestQuantile(t *testing.T) {
	s := samples{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.8: 4, 0.95: 5, 1: 5} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if f := (samples{}).figure(); f != nil {
		t.Errorf("no samples give %+v", f)
	}
	if f := (samples{2, 1}).figure(); f.P50 != 1 || f.P95 != 2 || f.Min != 1 || f.N != 2 {
		t.Errorf("got %+v", f)
	}
}
