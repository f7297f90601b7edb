package sandboxes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"agentbox/internal/audit"
	"agentbox/internal/sandbox"
	"agentbox/internal/server/doors"
)

// settings are what an owner has set, and the defaults.
type settings struct {
	UseSandbox  bool   `json:"use_sandbox"`
	ImageSize   string `json:"sandbox_image_size"`
	Memory      string `json:"sandbox_memory"`
	Timeout     string `json:"sandbox_timeout"`
	AutoCleanup bool   `json:"sandbox_auto_cleanup"`

	// chosen: the owner set Memory. What a request without a limit gets is less than
	// the default that is shown, and clients rely on both.
	chosen bool
}

// settingsName is where they are in the store: as an object with the fields that were
// set.
const settingsName = "autocoder"

// What may be set.
const (
	minImageSize, maxImageSize = 5 * sandbox.GiB, 50 * sandbox.GiB
	minMemory, maxMemory       = sandbox.GiB, 16 * sandbox.GiB
	minTimeout, maxTimeout     = 60, 86400 // seconds
	// keepStopped is how long stopped sandboxes stay, if they are cleaned up.
	keepStopped = 24 * time.Hour
)

// changes are settings as they are stored and sent; nil: not set.
type changes struct {
	UseSandbox  *bool   `json:"use_sandbox,omitempty"`
	ImageSize   *string `json:"sandbox_image_size,omitempty"`
	Memory      *string `json:"sandbox_memory,omitempty"`
	Timeout     *string `json:"sandbox_timeout,omitempty"`
	AutoCleanup *bool   `json:"sandbox_auto_cleanup,omitempty"`
}

func (c *changes) settings() settings {
	s := settings{ImageSize: "10gb", Memory: "4gb", Timeout: "3600", AutoCleanup: true, chosen: c.Memory != nil}
	set(&s.UseSandbox, c.UseSandbox)
	set(&s.ImageSize, c.ImageSize)
	set(&s.Memory, c.Memory)
	set(&s.Timeout, c.Timeout)
	set(&s.AutoCleanup, c.AutoCleanup)
	return s
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// memory is that of sandboxes whose caller does not say.
func (s *settings) memory() string {
	if s.chosen {
		return s.Memory
	}
	return defaultMemory
}

// idle is after which time without use a sandbox is stopped.
func (s *settings) idle(most time.Duration) time.Duration {
	seconds, _ := strconv.Atoi(s.Timeout) // it was checked
	d := time.Duration(max(seconds, minTimeout)) * time.Second
	return min(d, cmp.Or(most, d))
}

func (s *settings) keepStopped() time.Duration {
	if s.AutoCleanup {
		return keepStopped
	}
	return 0
}

func (d *door) stored(ctx context.Context, owner string) (c changes, err error) {
	text, err := d.Settings.Setting(ctx, owner, settingsName)
	if err == nil && text != "" {
		err = json.Unmarshal([]byte(text), &c)
	}
	if err != nil {
		return c, fmt.Errorf("read the owner's settings: %w", err)
	}
	return c, nil
}

func (d *door) settingsOf(ctx context.Context, owner string) (settings, error) {
	c, err := d.stored(ctx, owner)
	return c.settings(), err
}

func (d *door) getSettings(r *http.Request, c sandbox.Caller) (any, error) {
	return answerSettings(d.settingsOf(r.Context(), c.Owner))
}

func (d *door) setSettings(r *http.Request, c sandbox.Caller) (any, error) {
	ctx := r.Context()
	f, err := readForm(r)
	if err != nil {
		return nil, err
	}
	asked := f.changes()
	if err := f.err(); err != nil {
		return nil, err
	}
	d.setting.Lock()
	defer d.setting.Unlock()
	now, err := d.stored(ctx, c.Owner)
	if err != nil {
		return nil, err
	}
	now.add(asked)
	text, err := json.Marshal(now)
	if err == nil {
		err = d.Settings.SetSetting(ctx, c.Owner, settingsName, string(text))
	}
	doors.Record(ctx, d.Audit, c, audit.Policy, "", err, map[string]string{"settings": string(text)})
	return answerSettings(now.settings(), err)
}

func answerSettings(s settings, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *changes) add(more changes) {
	replace(&c.UseSandbox, more.UseSandbox)
	replace(&c.ImageSize, more.ImageSize)
	replace(&c.Memory, more.Memory)
	replace(&c.Timeout, more.Timeout)
	replace(&c.AutoCleanup, more.AutoCleanup)
}

func replace[T any](to **T, from *T) {
	if from != nil {
		*to = from
	}
}

// changes are those fields of a request that are settings of this door; others of
// autocoder's are passed over.
func (f *form) changes() (c changes) {
	for _, b := range []struct {
		name string
		to   **bool
	}{{"use_sandbox", &c.UseSandbox}, {"sandbox_auto_cleanup", &c.AutoCleanup}} {
		if _, ok := f.get(b.name); ok {
			v := f.boolean(b.name, false)
			*b.to = &v
		}
	}
	for _, s := range []struct {
		name        string
		to          **string
		least, most int64
		seconds     bool
		allowed     string
	}{
		{"sandbox_image_size", &c.ImageSize, minImageSize, maxImageSize, false, "5gb to 50gb"},
		{"sandbox_memory", &c.Memory, minMemory, maxMemory, false, "1gb to 16gb"},
		{"sandbox_timeout", &c.Timeout, minTimeout, maxTimeout, true, "60 to 86400 seconds, as a text"},
	} {
		raw, ok := f.get(s.name)
		if !ok {
			continue
		}
		text := f.textOrNumber(s.name)
		n, err := sandbox.ParseSize(s.name, text)
		if s.seconds {
			n, err = strconv.ParseInt(text, 10, 64)
		}
		if len(f.errs) == 0 && (err != nil || n < s.least || n > s.most || len(text) > maxNumber) {
			f.wrong("value_error", s.name, "it must be "+s.allowed, raw)
		}
		*s.to = &text
	}
	return c
}
