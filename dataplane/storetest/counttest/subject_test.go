package counttest_test

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/shared/window"
)

// identity returns the identity of a cell in the store.
func identity(fault string, c window.Cell) string {
	name := func(s string) string { return fmt.Sprintf("%q", fold(fault, "names", s)) }
	ws, ns, id := name(c.Workspace), name(c.Namespace), name(c.Identifier)
	d, seq := fmt.Sprint(c.DurationMs()), fmt.Sprint(c.Sequence)
	if fault != "names: modes are one" {
		d = fmt.Sprint(c.Mode, " ", d)
	}
	if fault != "names: generations are one" {
		d = fmt.Sprint(c.Generation, " ", d)
	}
	switch fault {
	case "names: are joined by colons":
		return strings.Join([]string{c.Workspace, c.Namespace, c.Identifier, d, seq}, ":")
	case "names: workspaces are one":
		ws = ""
	case "names: namespaces are one":
		ns = ""
	case "names: durations are one":
		d, seq = "", ""
	case "names: sequences are one":
		seq = ""
	}
	return strings.Join([]string{ws, ns, id, d, seq}, "|")
}

// fold returns text as a fault named "<where>: <how>" changes it.
func fold(fault, where, s string) string {
	how, ok := strings.CutPrefix(fault, where+": ")
	if !ok {
		return s
	}
	switch how {
	case "letter case is lost":
		return strings.ToLower(s)
	case "spaces are trimmed":
		return strings.TrimRight(s, " ")
	case "accents are lost":
		return strings.ReplaceAll(s, "é", "e")
	case "accents are composed":
		return strings.ReplaceAll(s, "e\u0301", "é")
	case "invalid UTF-8 is replaced":
		return strings.ToValidUTF8(s, "\ufffd")
	case "end at NUL":
		s, _, _ = strings.Cut(s, "\x00")
	case "are cut at 190 bytes":
		return s[:min(len(s), 190)]
	case "are unescaped":
		return strings.NewReplacer("%3A", ":", "%3a", ":").Replace(s)
	}
	return s
}
