package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	lineMax = 130 // of Markdown outside of tables and code
	cellMax = 160
)

// comment returns the comments of a Go file.
func comment(path string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, group := range file.Comments {
		text.WriteString(group.Text()) // without directives such as //go:build
	}
	return text.String(), nil
}

// page is a Markdown file without its code.
type page struct {
	prose string
	long  []string // line, and why it is too long
}

var (
	codeSpan = regexp.MustCompile("`[^`]*`")
	link     = regexp.MustCompile(`\]\([^)]*\)`)
)

// readPage separates a page's prose from its code. A fenced block is code. A span between backquotes counts as a single
// word.
func readPage(source string) (p page) {
	var prose strings.Builder
	fenced := false
	for i, line := range strings.Split(source, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		if strings.HasPrefix(trimmed, "|") {
			for _, cell := range strings.Split(trimmed, "|") {
				if n := utf8.RuneCountInString(shown(cell)); n > cellMax {
					p.long = append(p.long, fmt.Sprintf("%d: a table cell of %d characters, want %d at most", i+1, n, cellMax))
				}
			}
		} else if n := utf8.RuneCountInString(line); n > lineMax && !isLink(trimmed) {
			p.long = append(p.long, fmt.Sprintf("%d: %d characters, want %d at most", i+1, n, lineMax))
		}
		prose.WriteString(codeSpan.ReplaceAllString(shown(line), "code"))
		prose.WriteByte('\n')
	}
	p.prose = prose.String()
	return p
}

// shown returns a line without the targets of its links.
func shown(line string) string {
	return strings.TrimSpace(link.ReplaceAllString(line, "]"))
}

// isLink reports whether a line is a link or a picture, which cannot be broken.
func isLink(line string) bool {
	return !strings.Contains(line, " ") || strings.HasPrefix(line, "[!") || strings.HasPrefix(line, "![") ||
		strings.HasPrefix(line, "<")
}
