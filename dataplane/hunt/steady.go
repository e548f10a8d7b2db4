package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A change that keeps all behavior can still change what a seed plays: Go's runtime draws the order of select cases, of
// map keys and of timers that fire at the same moment from random numbers, and it also draws some when it allocates
// memory or makes a map. So a further allocation moves all later draws. A steady guest is built with a standard library
// that draws no orders, and in which each package that hands out random numbers has a sequence of its own. Then builds
// that behave alike have the same hashes.

// edit replaces a text that occurs once in a file of the standard library.
type edit struct{ file, old, new string }

// steadyEdits returns the edits for the versions of Go that go.mod allows. An edit that does not fit fails the build.
func steadyEdits() []edit {
	edits := []edit{
		{"runtime/rand.go", "func maps_rand() uint64 {\n\treturn rand()", "func maps_rand() uint64 {\n\treturn 0"},
		{"runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := uint32(norder)"},
		{"runtime/time.go", "t.rand = cheaprand()", "t.rand = 0"},
	}
	const shared = "//go:linkname runtime_rand runtime.rand\nfunc runtime_rand() uint64\n"
	for _, file := range []string{
		"math/rand/v2/rand.go", "hash/maphash/maphash_runtime.go", "internal/sync/hashtriemap.go",
	} {
		edits = append(edits, edit{file, shared, ownSequence})
	}
	return edits
}

// ownSequence is SplitMix64 (Steele, Lea and Flood: Fast splittable pseudorandom number generators, 2014). A guest has
// a single thread, so it needs no lock.
const ownSequence = `//go:linkname firstDrawn runtime.rand
func firstDrawn() uint64

var drawn = firstDrawn()

func runtime_rand() uint64 {
	drawn += 0x9e3779b97f4a7c15
	z := drawn
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
`

// steady returns the changer of a steady guest.
func steady(dir, scratch string) (string, error) {
	env := exec.Command("go", "env", "GOROOT")
	env.Dir = dir // go.mod may choose another version
	root, err := env.Output()
	if err != nil {
		return "", fmt.Errorf("find the standard library: %w", err)
	}
	replace := make(map[string]string)
	for i, e := range steadyEdits() {
		from := filepath.Join(strings.TrimSpace(string(root)), "src", filepath.FromSlash(e.file))
		text, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if strings.Count(string(text), e.old) != 1 {
			return "", fmt.Errorf("%s does not have %q once: this version of Go needs other edits", e.file, e.old)
		}
		to := filepath.Join(scratch, fmt.Sprintf("steady%d.go", i))
		if err := os.WriteFile(to, []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600); err != nil {
			return "", err
		}
		replace[from] = to
	}
	overlay := filepath.Join(scratch, "steady.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	return overlay, errors.Join(err, os.WriteFile(overlay, text, 0o600))
}
