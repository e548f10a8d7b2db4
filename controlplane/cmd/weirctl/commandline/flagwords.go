// Package commandline completes command lines and rewrites errors of the API for the command line. Both use the
// commands and flags in kong's model of a program.
package commandline

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
)

// FlagWords rewrites errors of the API for the command line. It replaces names of fields with the flags that set them,
// and milliseconds with durations as a flag takes them: for example, "overlap_ms is -1 (0 to 60000)" becomes "--overlap
// is -1ms (0s to 1m)".
type FlagWords map[string]*kong.Flag // by field

// otherFields maps fields to flags with a different name.
var otherFields = map[string]string{"longest_window_ms": "longest-duration", "before_version": "before"}

var (
	// aClause matches the beginning of a clause about a field.
	aClause = regexp.MustCompile(`(^|[:;\n] )([a-z]+(?:_[a-z]+)*) (is|are) `)
	// aField matches a word that can only be the name of a field.
	aField = regexp.MustCompile(`[a-z]+(?:_[a-z]+)+`)
	// someMs matches milliseconds after the name of a flag: the value, and its bounds in brackets.
	someMs = regexp.MustCompile(`^ is (-?\d+) \(([^)]*)\)`)
	number = regexp.MustCompile(`-?\d+`)
)

// FlagWordsOf returns the words of a command's flags.
func FlagWordsOf(flags []*kong.Flag) FlagWords {
	words := FlagWords{}
	for _, f := range flags {
		field := strings.ReplaceAll(f.Name, "-", "_")
		words[field] = f
		if isDuration(f) {
			words[field+"_ms"] = f
		}
		for other, name := range otherFields {
			if name == f.Name {
				words[other] = f
			}
		}
	}
	return words
}

func isDuration(f *kong.Flag) bool {
	if !f.Target.IsValid() {
		return false
	}
	of := f.Target.Type()
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	return of == reflect.TypeFor[time.Duration]()
}

// Rewrite returns the text with flags in place of fields.
func (w FlagWords) Rewrite(text string) string {
	text = aClause.ReplaceAllStringFunc(text, func(clause string) string {
		parts := aClause.FindStringSubmatch(clause)
		if w[parts[2]] == nil || strings.Contains(parts[2], "_") { // fields with an underscore are replaced below
			return clause
		}
		return parts[1] + "--" + w[parts[2]].Name + " " + parts[3] + " "
	})
	var out strings.Builder
	for {
		at := aField.FindStringIndex(text)
		if at == nil {
			out.WriteString(text)
			return out.String()
		}
		field := text[at[0]:at[1]]
		out.WriteString(text[:at[0]])
		text = text[at[1]:]
		flag := w[field]
		if flag == nil {
			out.WriteString(field)
			continue
		}
		out.WriteString("--" + flag.Name)
		if !strings.HasSuffix(field, "_ms") || !isDuration(flag) {
			continue
		}
		if ms := someMs.FindString(text); ms != "" {
			out.WriteString(number.ReplaceAllStringFunc(ms, durationOf))
			text = text[len(ms):]
		}
	}
}

// durationOf formats milliseconds as a flag's duration.
func durationOf(ms string) string {
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n > (1<<63-1)/int64(time.Millisecond) || n < -(1<<63-1)/int64(time.Millisecond) {
		return ms + "ms"
	}
	return format.WholeUnits((time.Duration(n) * time.Millisecond).String())
}
