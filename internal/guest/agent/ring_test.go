package agent

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestRing(t *testing.T) {
	for _, size := range []int64{1, 10, 1_000, 100_000, 1 << 20} {
		r := ring{size: size}
		var all []byte
		var held int64
		for len(all) < 300_000 {
			p := bytes.Repeat([]byte{byte(len(all))}, 1+rand.IntN(5_000))
			all = append(all, p...)
			held += r.put(p)
			if held != r.held() || held > size+2*maxChunk {
				t.Fatalf("size %d: accounted %d, holds %d", size, held, r.held())
			}
			if n := int64(rand.IntN(10)); n == 0 {
				held -= r.drop(r.first + (r.end-r.first)/2)
			}
			if r.end != int64(len(all)) || r.end-r.first > size || r.total != r.end {
				t.Fatalf("size %d: holds %d to %d of %d", size, r.first, r.end, len(all))
			}
			from := r.first + rand.Int64N(r.end-r.first+1)
			got := make([]byte, r.end-from)
			if n := r.copyAt(got, from); n != len(got) || !bytes.Equal(got, all[from:]) {
				t.Fatalf("size %d: wrong bytes from %d on", size, from)
			}
		}
		held -= r.drop(r.end)
		if held != 0 || r.held() != 0 || !r.dropped {
			t.Errorf("size %d: an empty ring holds %d", size, r.held())
		}
	}
}

func TestRingLimit(t *testing.T) {
	r := ring{size: 1 << 20, limit: 10}
	r.put([]byte("123456"))
	r.put([]byte("789abc"))
	r.put([]byte("def"))
	if string(r.bytes(100)) != "123456789a" || r.total != 15 || !r.dropped {
		t.Errorf("got %q of %d, dropped %v", r.bytes(100), r.total, r.dropped)
	}
}

func TestRingSmallOutput(t *testing.T) {
	r := ring{size: 4 << 20}
	r.put([]byte("hi\n"))
	if r.held() > minChunk {
		t.Errorf("three bytes take %d", r.held())
	}
}
