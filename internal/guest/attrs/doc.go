// Package attrs keeps what the save of a stopped sandbox can't: the fractions
// of seconds of modification times, and extended attributes that do not fit
// into a tar.
//
// gVisor writes the tree of a writable layer as a tar whose times are rounded to
// seconds, and leaves out attributes with an empty value, bytes that are no
// UTF-8, or "=" in the name. [Read] looks at every entry of that tar in the
// living tree and notes what the tar lost; [Apply] sets it after the tree was
// made again. Both run in the sandbox, as helpers from files of the host, while
// no user code runs.
//
// # Format
//
// Records one after the other, and an empty path as the end, so that a note
// that was cut is refused:
//
//	path, seconds (varint), nanoseconds (uvarint), number of attributes (uvarint),
//	for each: name, value
//
// Texts are their length (uvarint) and their bytes.
package attrs
