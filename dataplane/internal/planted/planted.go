// Package planted reads bugs that are planted to prove that the searches of dataplane/hunt find
// them. It is a package of its own so that a change which breaks a patch fails in the tests of the
// module that it changes.
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

// Bug is a patch of a file: a line that describes the bug, followed by a unified diff. Each hunk applies wherever its
// lines occur, whatever its line numbers, so that a patch survives changes elsewhere in the file.
type Bug struct {
	Name  string // file name of the patch, without .patch
	What  string // the promise that it breaks
	File  string // path below the module, with slashes
	Hunks []Hunk
}

// Hunk is a number of whole lines, and the lines that replace them.
type Hunk struct{ Before, After string }

// ErrPatch is wrapped by errors about a patch that cannot be parsed or does not fit.
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

// Parse parses the text of a patch.
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
			return p, fmt.Errorf("%w: the line %q belongs to no hunk", ErrPatch, line)
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

// Apply returns a file's source with the bug in it. Each hunk must fit at exactly a single place.
func (p *Bug) Apply(source string) (string, error) {
	source = "\n" + source // so that whole lines begin after a line break
	for i, h := range p.Hunks {
		if n := strings.Count(source, "\n"+h.Before); n != 1 {
			return "", fmt.Errorf("%w %s: hunk %d has %d places in %s, want 1: plant the same bug in the code as it is now",
				ErrPatch, p.Name, i+1, n, p.File)
		}
		source = strings.Replace(source, "\n"+h.Before, "\n"+h.After, 1)
	}
	return source[1:], nil
}

// Overlay writes files into scratch for go build -overlay, which then builds the module in dir with
// the bug. It returns the overlay's path, and does not change the module.
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
