package rpc

import "testing"

// However many clients let their downloads wait, what those hold is bounded: one that
// takes nothing costs little behind the first ones.
func TestManyDownloadsHoldLittle(t *testing.T) {
	d := make(downloads, maxLarge)
	var first func()
	for i := range maxLarge {
		chunk, done := d.enter()
		if chunk != largeChunk {
			t.Fatalf("download %d has messages of %d bytes", i, chunk)
		}
		first = done
	}
	for range 1000 {
		chunk, done := d.enter()
		if chunk != smallChunk {
			t.Fatalf("a further one has messages of %d bytes", chunk)
		}
		done()
	}
	first()
	if chunk, _ := d.enter(); chunk != largeChunk {
		t.Errorf("when one has ended the next one has messages of %d bytes", chunk)
	}
}
