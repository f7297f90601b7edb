package programs

import "fmt"

// Carried says what of the two programs this executable has.
type Carried struct {
	// Engine and Guest are the builds, as they name directories below the data directory.
	Engine, Guest string
	// Embedded: they are in the executable itself, not beside it.
	Embedded bool
}

// Look identifies the two programs without laying them out.
func Look() (c Carried, err error) {
	c.Embedded = embedded
	for name, to := range map[string]*string{engineName: &c.Engine, guestName: &c.Guest} {
		p, err := find(name)
		if err != nil {
			return c, err
		}
		if *to, err = p.build(); err != nil {
			return c, fmt.Errorf("identify %s: %w", name, err)
		}
	}
	return c, nil
}
