// Package planted reads bugs that are planted to prove that the searches of dataplane/hunt find them. It is apart from
// them so that a change which moves code away from a patch fails in the tests of the module that it changes.
package planted

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bug is a patch of one file: a unified diff below a line that says what it breaks. Its hunks apply where their lines
// are, whatever their numbers say, so that a patch outlives changes elsewhere in its file.
type Bug struct {
	Name  string // of the patch, without .patch
	What  string // that it breaks
	File  string // slash-separated, below the module
	Hunks []Hunk
}

// Hunk is some whole lines, and the lines that take their place.
type Hunk struct{ Before, After string }

// ErrPatch is returned of a patch that cannot be read, or does not fit.
var ErrPatch = errors.New("patch")

// Read reads every patch in a directory, by name.
func Read(dir string) ([]Bug, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%w: %s has no *.patch", ErrPatch, dir)
	}
	slices.Sort(paths)
	var all []Bug
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		p, err := Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		p.Name = strings.TrimSuffix(filepath.Base(path), ".patch")
		all = append(all, p)
	}
	return all, nil
}

// Parse reads the text of a patch.
func Parse(text string) (p Bug, err error) {
	what, diff, found := strings.Cut(text, "\n--- a/")
	if !found {
		return p, fmt.Errorf("%w: no line says --- a/FILE below the first", ErrPatch)
	}
	p.What = strings.TrimSpace(what)
	file, rest, _ := strings.Cut(diff, "\n")
	p.File = file
	for line := range strings.Lines(rest) {
		switch n := len(p.Hunks) - 1; {
		case strings.HasPrefix(line, "+++ b/"):
		case strings.HasPrefix(line, "@@"):
			p.Hunks = append(p.Hunks, Hunk{})
		case n < 0 || !strings.ContainsAny(line[:1], " +-"):
			return p, fmt.Errorf("%w: a line that is none of a hunk: %q", ErrPatch, line)
		default:
			p.Hunks[n].add(line[0], line[1:])
		}
	}
	if len(p.Hunks) == 0 {
		return p, fmt.Errorf("%w: no hunk", ErrPatch)
	}
	return p, nil
}

func (h *Hunk) add(kind byte, line string) {
	if kind != '+' {
		h.Before += line
	}
	if kind != '-' {
		h.After += line
	}
}

// Apply returns a file's source with the bug in it. Each hunk must have exactly one place.
func (p *Bug) Apply(source string) (string, error) {
	source = "\n" + source // whole lines begin after one
	for i, h := range p.Hunks {
		if n := strings.Count(source, "\n"+h.Before); n != 1 {
			return "", fmt.Errorf("%w %s: hunk %d has %d places in %s, want 1: plant the same bug in the code as it is now",
				ErrPatch, p.Name, i+1, n, p.File)
		}
		source = strings.Replace(source, "\n"+h.Before, "\n"+h.After, 1)
	}
	return source[1:], nil
}

// Overlay writes into scratch what go build -overlay reads to see the module in dir with the bug in it, and returns its
// path. The module stays as it is.
func (p *Bug) Overlay(dir, scratch string) (string, error) {
	source, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(p.File)))
	if err != nil {
		return "", err
	}
	mutant, err := p.Apply(string(source))
	if err != nil {
		return "", err
	}
	file, overlay := filepath.Join(scratch, "planted.go"), filepath.Join(scratch, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {p.File: file}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(file, []byte(mutant), 0o600), os.WriteFile(overlay, text, 0o600))
}
