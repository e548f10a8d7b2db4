package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// planted is a bug as a patch of one file: a unified diff below a line that says what it breaks. Its hunks apply where
// their lines are, whatever their numbers say, so that a patch outlives changes elsewhere in its file.
type planted struct {
	name  string // of the patch, without .patch
	what  string
	file  string // slash-separated, below the module
	hunks []hunk
}

// hunk is some whole lines, and what takes their place.
type hunk struct{ before, after string }

var errPatch = errors.New("patch")

// readPlanted reads every patch in a directory, by name.
func readPlanted(dir string) ([]planted, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%w: %s has no *.patch", errPatch, dir)
	}
	slices.Sort(paths)
	var all []planted
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		p, err := parsePlanted(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		p.name = strings.TrimSuffix(filepath.Base(path), ".patch")
		all = append(all, p)
	}
	return all, nil
}

func parsePlanted(text string) (p planted, err error) {
	what, diff, found := strings.Cut(text, "\n--- a/")
	if !found {
		return p, fmt.Errorf("%w: no line says --- a/FILE below the first", errPatch)
	}
	p.what = strings.TrimSpace(what)
	file, rest, _ := strings.Cut(diff, "\n")
	p.file = file
	for line := range strings.Lines(rest) {
		switch n := len(p.hunks) - 1; {
		case strings.HasPrefix(line, "+++ b/"):
		case strings.HasPrefix(line, "@@"):
			p.hunks = append(p.hunks, hunk{})
		case n < 0 || !strings.ContainsAny(line[:1], " +-"):
			return p, fmt.Errorf("%w: a line that is none of a hunk: %q", errPatch, line)
		default:
			p.hunks[n].add(line[0], line[1:])
		}
	}
	if len(p.hunks) == 0 {
		return p, fmt.Errorf("%w: no hunk", errPatch)
	}
	return p, nil
}

func (h *hunk) add(kind byte, line string) {
	if kind != '+' {
		h.before += line
	}
	if kind != '-' {
		h.after += line
	}
}

// apply returns a file's source with the bug in it. Each hunk must have exactly one place.
func (p *planted) apply(source string) (string, error) {
	source = "\n" + source // whole lines begin after one
	for i, h := range p.hunks {
		if n := strings.Count(source, "\n"+h.before); n != 1 {
			return "", fmt.Errorf("%w %s: hunk %d has %d places in %s", errPatch, p.name, i+1, n, p.file)
		}
		source = strings.Replace(source, "\n"+h.before, "\n"+h.after, 1)
	}
	return source[1:], nil
}

// overlay writes into scratch what go build -overlay reads to see the module in dir with the bug in it, and returns its
// path. The module stays as it is.
func (p *planted) overlay(dir, scratch string) (string, error) {
	source, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(p.file)))
	if err != nil {
		return "", err
	}
	mutant, err := p.apply(string(source))
	if err != nil {
		return "", err
	}
	file, overlay := filepath.Join(scratch, "planted.go"), filepath.Join(scratch, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {p.file: file}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(file, []byte(mutant), 0o600), os.WriteFile(overlay, text, 0o600))
}
