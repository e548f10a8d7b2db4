package main

import (
	"reflect"
	"strings"
	"testing"
)

// transcript is what `go test -json` prints, one event a line.
func transcript(lines ...string) *strings.Reader {
	return strings.NewReader(strings.Join(lines, "\n") + "\n")
}

func TestReport(t *testing.T) {
	for _, test := range []struct {
		name    string
		events  []string
		summary string
		ok      bool
		shown   []string
		hidden  []string
	}{{
		name: "of a test that passes nothing is printed",
		events: []string{
			`{"Action":"start","Package":"p"}`,
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}`,
			`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}`,
			`{"Action":"pass","Package":"p","Elapsed":0.2}`,
		},
		summary: "1 passed, 0 failed, 0 skipped", ok: true,
		shown: []string{"ok    p 0.2s"}, hidden: []string{"chatter", "TestA"},
	}, {
		name: "of one that fails its own output is",
		events: []string{
			`{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}`,
			`{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN TestB\n"}`,
			`{"Action":"output","Package":"p","Test":"TestB","Output":"want 1, got 2\n"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p","Test":"TestB"}`,
			`{"Action":"fail","Package":"p"}`,
		},
		summary: "1 passed, 1 failed, 0 skipped",
		shown:   []string{"FAIL  p.TestB", "want 1, got 2"}, hidden: []string{"chatter", "=== RUN"},
	}, {
		name: "a skipped test is not ok",
		events: []string{
			`{"Action":"output","Package":"p","Test":"TestA","Output":"no server here\n"}`,
			`{"Action":"skip","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p"}`,
		},
		summary: "0 passed, 0 failed, 1 skipped",
		shown:   []string{"SKIP  p.TestA", "no server here"},
	}, {
		name: "a package without tests is",
		events: []string{
			`{"Action":"output","Package":"p","Output":"?   \tp\t[no test files]\n"}`,
			`{"Action":"skip","Package":"p"}`,
		},
		summary: "0 passed, 0 failed, 0 skipped", ok: true,
	}, {
		name: "a test cut short by a panic or a timeout has failed",
		events: []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: test timed out\n"}`,
			`{"Action":"fail","Package":"p"}`,
		},
		summary: "0 passed, 1 failed, 0 skipped",
		shown:   []string{"FAIL  p.TestA", "panic: test timed out"},
	}, {
		name: "what does not build has failed, and the compiler says why",
		events: []string{
			`{"ImportPath":"p [p.test]","Action":"build-output","Output":"a.go:1:1: undefined: x\n"}`,
			`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
			`{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}`,
			`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
		},
		summary: "0 passed, 1 failed, 0 skipped",
		shown:   []string{"a.go:1:1: undefined: x", "build failed"},
	}, {
		name:    "words that are no events go through",
		events:  []string{`go: cannot find main module`},
		summary: "0 passed, 0 failed, 0 skipped", ok: true,
		shown: []string{"go: cannot find main module"},
	}} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			if err := r.read(transcript(test.events...)); err != nil {
				t.Fatal(err)
			}
			if got := r.summary(); got != test.summary {
				t.Errorf("summary: %s, want %s", got, test.summary)
			}
			if r.ok() != test.ok {
				t.Errorf("ok: %v, want %v", r.ok(), test.ok)
			}
			for _, s := range test.shown {
				if !strings.Contains(out.String(), s) {
					t.Errorf("%q is missing in:\n%s", s, &out)
				}
			}
			for _, s := range test.hidden {
				if strings.Contains(out.String(), s) {
					t.Errorf("%q should not be in:\n%s", s, &out)
				}
			}
		})
	}
}

func TestArguments(t *testing.T) {
	groups := split(strings.Fields("-- -race ./a ./b -- -C sub ./... --"))
	want := [][]string{{"-race", "./a", "./b"}, {"-C", "sub", "./..."}}
	if !reflect.DeepEqual(groups, want) {
		t.Fatalf("groups: %q, want %q", groups, want)
	}
	for i, want := range []string{"test -json -race ./a ./b", "test -C sub -json ./..."} {
		if got := strings.Join(command(groups[i]), " "); got != want {
			t.Errorf("command: %s, want %s", got, want)
		}
	}
}
