package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// engineDigits is how much of a sandbox's id the back end's own names have.
const engineDigits = 24

var engineName = regexp.MustCompile(`[0-9a-f]{24,64}`)

// Disagreements compares what sandboxes of the daemon there should be, by the id
// their state, with what the host has, and returns a line for each difference: a
// process, a control group, a file that belongs to none of them or is missing.
// Sandboxes on their way to another state have what they have.
func (d *Daemon) Disagreements(states map[string]string) []string {
	d.t.Helper()
	var out []string
	found := d.onHost()
	for uid, state := range states {
		name := uid[:engineDigits]
		has := found[name]
		delete(found, name)
		var want []string
		switch state {
		case "running":
			want = []string{"control group", "directory", "process", "state"}
		case "stopped":
			want = []string{"directory"}
		default:
			continue
		}
		if !slices.Equal(has, want) {
			out = append(out, fmt.Sprintf("%s, which is %s, has %q, not %q", name, state, has, want))
		}
	}
	for name, has := range found {
		out = append(out, fmt.Sprintf("%s, which nobody knows, has %q", name, has))
	}
	slices.Sort(out)
	return out
}

// onHost returns the kinds of things that the daemon's sandboxes have, sorted.
func (d *Daemon) onHost() map[string][]string {
	d.t.Helper()
	found := map[string][]string{}
	add := func(kind, text string) {
		name := engineName.FindString(text)
		if name == "" {
			name = strings.Repeat("?", engineDigits) + text
		}
		name = name[:engineDigits]
		if !slices.Contains(found[name], kind) {
			found[name] = append(found[name], kind)
			slices.Sort(found[name])
		}
	}
	each := func(kind string, patterns ...string) {
		for _, p := range patterns {
			paths, err := filepath.Glob(p)
			if err != nil {
				d.t.Fatal(err)
			}
			for _, path := range paths {
				add(kind, filepath.Base(path))
			}
		}
	}
	own := filepath.Join(d.Dir, "daemon")
	each("directory", filepath.Join(own, "sandboxes", "*"))
	each("state", filepath.Join(own, "run", "*"))
	mark, err := os.ReadFile(filepath.Join(own, "owner"))
	if err != nil {
		d.t.Fatal(err)
	}
	_ = filepath.WalkDir(cgroupRoot, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile
		}
		if dir, name := filepath.Split(path); entry.IsDir() && strings.HasSuffix(dir, "/agentbox/"+strings.TrimSpace(string(mark))+"/") {
			add("control group", name)
			return fs.SkipDir
		}
		return nil
	})
	for _, pid := range pids(d.t) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if args := strings.ReplaceAll(string(line), "\x00", " "); err == nil && strings.Contains(args, own) {
			add("process", args)
		}
	}
	return found
}

// VolumeDisagreements compares the number of volumes that there should be, and of
// those that sandboxes have, with what the host has, and returns a line for each
// difference.
func (d *Daemon) VolumeDisagreements(volumes, held int) (out []string) {
	d.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(d.Dir, "volumes", "*"))
	if err != nil {
		d.t.Fatal(err)
	}
	if len(dirs) != volumes {
		out = append(out, fmt.Sprintf("%d volumes should be on the host, which has %q", volumes, dirs))
	}
	images := 0
	for _, dir := range dirs {
		_, image := os.Lstat(filepath.Join(dir, "image"))
		_, data := os.Lstat(filepath.Join(dir, "data"))
		switch {
		case image == nil:
			images++
		case data != nil:
			out = append(out, dir+" is half a volume: it has neither an image nor data")
		}
	}
	if images == 0 {
		held = 0 // directories are not mounted
	}
	if mounts := d.mounts(); len(mounts) != held {
		out = append(out, fmt.Sprintf("%d volumes should be mounted, and these are: %q", held, mounts))
	}
	return out
}

// mounts lists what of the daemon's volumes is mounted.
func (d *Daemon) mounts() (all []string) {
	d.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, d.Dir+"/") {
			all = append(all, line)
		}
	}
	return all
}

// loops lists the loop devices that have files of the daemon's volumes.
func (d *Daemon) loops() (all []string) {
	d.t.Helper()
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, l := range loops {
		if b, err := os.ReadFile(l); err == nil && strings.HasPrefix(string(b), d.Dir+"/") {
			all = append(all, l)
		}
	}
	return all
}

// NoneMounted waits until nothing of the volumes is mounted: a process of another
// test that began a mount namespace of its own has our mounts for a moment.
func (d *Daemon) NoneMounted() {
	d.t.Helper()
	for end := time.Now().Add(20*time.Second + Slack()); ; time.Sleep(20 * time.Millisecond) {
		left := append(d.mounts(), d.loops()...)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			d.t.Errorf("left mounted: %q", left)
			return
		}
	}
}
