//go:build linux

package pid1

import (
	"crypto/sha1" //nolint:gosec // what the format asks for; nothing rests on it
	"encoding/binary"
	"strconv"
	"unicode/utf16"
)

// keyStore is a Java key store (JKS) of trusted certificates, which every Java
// reads. Its password is the customary one; programs that give none take the
// store without looking at the sum at its end.
func keyStore(certs [][]byte) []byte {
	const (
		magic, version = 0xfeedfeed, 2
		trusted        = 2 // tag of an entry
		kind           = "X.509"
	)
	b := binary.BigEndian.AppendUint32(nil, magic)
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint32(b, uint32(len(certs)))
	for i, c := range certs {
		b = binary.BigEndian.AppendUint32(b, trusted)
		b = appendText(b, "agentbox-"+strconv.Itoa(i))
		b = binary.BigEndian.AppendUint64(b, 0) // when it was made
		b = appendText(b, kind)
		b = binary.BigEndian.AppendUint32(b, uint32(len(c)))
		b = append(b, c...)
	}
	sum := sha1.New() //nolint:gosec // see above
	for _, c := range utf16.Encode([]rune("changeit")) {
		sum.Write(binary.BigEndian.AppendUint16(nil, c))
	}
	sum.Write([]byte("Mighty Aphrodite"))
	sum.Write(b)
	return sum.Sum(b)
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}
