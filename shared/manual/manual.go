// Package manual reads the commands on the repository's pages, for tests that compare them with the programs and files
// that they name.
package manual

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Command is a command on a page: the text between two of |, &&, ; and similar signs.
type Command struct {
	Page  string // from the root of the repository
	Line  int
	Env   []string // NAME=value before the command
	Words []string // as a shell would split them, quotes gone

	// Mentioned commands stand within a sentence, where arguments may be left out.
	Mentioned bool
}

func (c Command) String() string {
	return fmt.Sprintf("%s:%d: %s", c.Page, c.Line, strings.Join(append(slices.Clone(c.Env), c.Words...), " "))
}

// Args returns the words after the first, up to an alternative. It leaves out signs that mark optional or repeated
// words.
func (c Command) Args() (args []string) {
	for _, word := range c.Words[1:] {
		if word == "|" {
			break
		}
		word = strings.Trim(word, "[]")
		if word != "…" || len(args) > 0 && valueless.MatchString(args[len(args)-1]) {
			args = append(args, word)
		}
	}
	return args
}

// Forgives reports whether a parser's only error about the command is that its last flag has no value. A sentence may
// leave the value out.
func (c Command) Forgives(err error) bool {
	return c.Mentioned && (strings.Contains(err.Error(), `but got "EOL"`) ||
		strings.Contains(err.Error(), "missing value"))
}

// Of returns the commands of a program on all pages.
func Of(t testing.TB, program string) (all []Command) {
	t.Helper()
	for _, c := range All(t) {
		if c.Words[0] == program {
			all = append(all, c)
		}
	}
	return all
}

// All returns the commands of all pages.
func All(t testing.TB) (all []Command) {
	t.Helper()
	root := Root(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{"node_modules", "out", "bin", ".git"}, d.Name()) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		page, err := filepath.Rel(root, path)
		all = append(all, Parse(page, string(text))...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Root returns the repository's root, above the working directory.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		var text []byte
		if text, err = os.ReadFile(filepath.Join(dir, "go.mod")); err == nil &&
			strings.HasPrefix(string(text), "module github.com/weirhq/weir\n") {
			return dir
		}
		if os.IsNotExist(err) && dir != filepath.Dir(dir) {
			err = nil
		}
	}
	t.Fatal(err)
	return ""
}

var (
	fence    = regexp.MustCompile("^ *```(\\w*)")
	indented = regexp.MustCompile(`^    (\S.*)$`)
	span     = regexp.MustCompile("`([^`]+)`")
	first    = regexp.MustCompile(`^(\$ )?(?:[A-Z_]+=\S* +)*([\w./$-]+)(?:\s|$)`)
)

// Parse returns the commands of a page: every line of a block in sh, every line of any other block that begins with "$
// " or with a known program, and code in sentences that is a command of our programs.
func Parse(page, text string) (all []Command) {
	lines := strings.Split(text, "\n")
	block, fenced := "", false
	for i := 0; i < len(lines); i++ {
		at, line := i+1, lines[i]
		if m := fence.FindStringSubmatch(line); m != nil {
			block, fenced = m[1], !fenced
			continue
		}
		code := indented.FindStringSubmatch(line)
		switch {
		case fenced && block != "" && block != "sh":
			continue
		case fenced:
			line = strings.TrimSpace(line)
		case code != nil:
			line = code[1]
		default:
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				if words := split(m[1]); len(words) > 1 && slices.Contains(ours, words[0]) {
					all = append(all, Command{Page: page, Line: at, Words: words, Mentioned: true})
				}
			}
			continue
		}
		if m := first.FindStringSubmatch(line); m == nil || !(fenced && block == "sh") && m[1] == "" && !Known(m[2]) {
			continue
		}
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) || strings.Count(line, "'")%2 == 1 && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + " " + strings.TrimSpace(lines[i])
		}
		all = append(all, commands(page, at, strings.TrimPrefix(line, "$ "))...)
	}
	return all
}

// commands splits a line into commands.
func commands(page string, at int, line string) (all []Command) {
	c := Command{Page: page, Line: at}
	done := func() {
		if len(c.Words) > 0 {
			all = append(all, c)
		}
		c = Command{Page: page, Line: at}
	}
	for _, word := range split(line) {
		switch {
		case slices.Contains([]string{"|", "&&", "||", ";", "(", ")", "{", "}"}, word):
			done()
		case len(c.Words) == 0 && assignment.MatchString(word):
			c.Env = append(c.Env, word)
		default:
			c.Words = append(c.Words, word)
		}
	}
	done()
	return all
}

var (
	valueless  = regexp.MustCompile(`^--[^=]+$`)
	assignment = regexp.MustCompile(`^[A-Za-z_]\w*=`)
	word       = regexp.MustCompile(`#.*$|\|\||&&|[|;]|(?:[^\s"'|;]|"[^"]*"|'[^']*')+`)
	unquoted   = strings.NewReplacer(`"`, "", `'`, "")
)

// split splits as a shell does, as far as the pages need it.
func split(line string) (words []string) {
	for _, m := range word.FindAllString(line, -1) {
		if strings.HasPrefix(m, "#") {
			break
		}
		words = append(words, unquoted.Replace(m))
	}
	return words
}
