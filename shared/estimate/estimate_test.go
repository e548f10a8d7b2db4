package estimate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/window"
)

// Behaviour 10: "split on ',', then the first '='; both sides trimmed; malformed parts
// are logged and skipped; later wins; 0 allowed".
func TestOverridesText(t *testing.T) {
	limits, err := ParseOverrides(" a = 5 ,b=0,c=1=2,=7,d,e=-1,f=x,a=6,,g=9007199254740992")
	if want := "map[a:6 b:0]"; fmt.Sprint(limits) != want {
		t.Errorf("%v, want %v", limits, want)
	}
	for _, part := range []string{`"c=1=2"`, `"=7"`, `"d"`, `"e=-1"`, `"f=x"`, "1 more"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
	if limits, err := ParseOverrides(""); limits != nil || err != nil {
		t.Errorf("nothing is %v, %v", limits, err)
	}
}

// A field has a single spelling and appears once. encoding/json would take "Floor" for floor, and the last of two
// fields.
func TestADocumentsFieldsAreThereOnce(t *testing.T) {
	for text, says := range map[string]string{
		`{"floor":5}`:                   "",
		`null`:                          "",
		`{}`:                            "",
		`{"Floor":5}`:                   `no field "Floor"`,
		`{"floor":5,"FLOOR":6}`:         `no field "FLOOR"`,
		`{"floor":5,"floor":6}`:         "floor appears twice",
		`{"flo\u006fr":5}`:              "",
		`{"test":">","\u0074est":">="}`: "test appears twice",
	} {
		_, err := Parse(text)
		if (err == nil) != (says == "") || err != nil && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// For any text, accepted limits are within bounds, and each is spelled by a part of the text.
func FuzzOverridesText(f *testing.F) {
	for _, s := range []string{"a=1,b=2", "=,=", "a==1", " a = 1 ", "a=99999999999999999999", ",,,", "\x00=1", "a=1,a=0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		limits, err := ParseOverrides(text)
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
		for key, limit := range limits {
			if key == "" || len(key) > window.IdentifierBytesMax || strings.TrimSpace(key) != key || limit < 0 || limit > window.LimitMax {
				t.Fatalf("%q=%d", key, limit)
			}
			again, err := ParseOverrides(fmt.Sprintf("%s=%d", key, limit))
			if err != nil || again[key] != limit {
				t.Fatalf("%q=%d is read back as %v, %v", key, limit, again, err)
			}
		}
	})
}
