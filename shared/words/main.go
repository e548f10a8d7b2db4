// Words compares the language of comments and pages with the targets of CONTRIBUTING.md, per 1,000 words. It fails if
// the whole tree misses a target, or if a page is hard to read as source: Markdown lines over 130 characters, table
// cells over 160.
//
// Counts show where to read, and are no goal: rewrite the sentence, do not replace the word.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}

// skipped are directories without prose that people of this project have written.
var skipped = []string{".git", "bin", "gen", "node_modules", "out", "testdata"}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("words", flag.ContinueOnError)
	worst := flags.Int("worst", 0, "print so many packages and pages that are farthest from the targets")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root := flags.Arg(0)
	if root == "" {
		root = "."
	}
	comments, pages := newTally("comments"), newTally("pages")
	var long []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && slices.Contains(skipped, d.Name()):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			text, err := comment(path)
			comments.add(filepath.Dir(path), text)
			return err
		case strings.HasSuffix(path, ".md") && d.Name() != "LICENSE.md":
			source, err := os.ReadFile(path)
			p := readPage(string(source))
			pages.add(path, p.prose)
			for _, l := range p.long {
				long = append(long, path+":"+l)
			}
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range []*tally{comments, pages} {
		errs = append(errs, t.print(out))
		t.printWorst(out, *worst)
	}
	if len(long) > 0 {
		errs = append(errs, fmt.Errorf("too long to read as source:\n%s", strings.Join(long, "\n")))
	}
	return errors.Join(errs...)
}

// tally counts patterns in texts of a kind.
type tally struct {
	kind   string
	all    counts
	places map[string]*counts
}

func newTally(kind string) *tally { return &tally{kind: kind, places: make(map[string]*counts)} }

func (t *tally) add(place, text string) {
	c := count(text)
	t.all.add(&c)
	if t.places[place] == nil {
		t.places[place] = new(counts)
	}
	t.places[place].add(&c)
}

// print prints the counts of a kind of text. It returns an error that names the targets which are missed.
func (t *tally) print(out io.Writer) error {
	var missing []string
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s, %d words\tper 1,000\ttarget\t\n", strings.ToUpper(t.kind), t.all.words)
	for i, p := range patterns {
		per, missed := t.all.per(i), ""
		if !p.holds(per) {
			missed, missing = "missed", append(missing, p.name)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%s\t%s\n", p.name, per, p.target(), missed)
	}
	fmt.Fprintln(w)
	_ = w.Flush() // out has no errors that matter here
	if len(missing) > 0 && t.all.words > 0 {
		return fmt.Errorf("%s miss the targets for: %s", t.kind, strings.Join(missing, "; "))
	}
	return nil
}

// printWorst prints the places that miss the targets by the most words.
func (t *tally) printWorst(out io.Writer, n int) {
	var places []string
	for place := range t.places {
		places = append(places, place)
	}
	slices.SortFunc(places, func(a, b string) int {
		return int(1000 * (t.places[b].excess() - t.places[a].excess()))
	})
	for _, place := range places[:min(n, len(places))] {
		c := t.places[place]
		fmt.Fprintf(out, "%4.0f too many of %6d words  %s\n", c.excess(), c.words, place)
	}
}
