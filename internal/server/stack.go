package server

import "net/http"

// stackRoom is what handlers of commands take of their stack, in bytes, measured as the
// size above which it no longer grows while they run.
const stackRoom = 14 << 10

// roomy gives a request of HTTP/2 its stack at once. HTTP/2 serves each in a goroutine of
// its own, whose stack grows in steps that copy all that is on it: measured at a twentieth
// of the server's time for a command. HTTP/1.1 keeps a connection's goroutine.
func roomy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor > 1 {
			growStack(0)
		}
		next.ServeHTTP(w, r)
	})
}

// growStack has so large a frame that the stack grows to hold it while there is little
// to copy. The index keeps the compiler from leaving the frame out.
//
//go:noinline
func growStack(i int) byte {
	var room [stackRoom]byte
	return room[i]
}
