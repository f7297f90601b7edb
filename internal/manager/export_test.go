package manager

// Reencode reads a cursor and writes it again.
func Reencode(cursor string) (string, error) {
	p, err := parseCursor(cursor)
	if err != nil {
		return "", err
	}
	return p.cursor(), nil
}
