package sim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

func play(t *testing.T, text string) (mismatches []string) {
	t.Helper()
	script, err := ParseTranscript(text)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if mismatches, err = PlayHere(script); err != nil {
			t.Fatal(err)
		}
	})
	return mismatches
}

// Convergence is specified by the transcripts in testdata.
func TestTranscripts(t *testing.T) {
	for _, file := range transcripts(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			for _, mismatch := range play(t, read(t, file)) {
				t.Error(mismatch)
			}
		})
	}
}

// Play reports each line of a transcript whose result differs, and no other line.
func TestTranscriptsCanFail(t *testing.T) {
	got := play(t, `regions eu us limit 10/60s floor 0.5
0s eu allow 6 -> 6 allowed
0s us allow 6 -> denied
5s * replay   -> eu 6, us 5
6s * publish     -> eu foreign none, us foreign 6
7s us allow 1 -> 1 allowed
7s us peek    -> 3 left
8s eu replay  -> eu 7`)
	want := []string{"line 3: ", "line 4: ", "line 5: ", "line 6: ", "line 7: ", "line 8: "}
	if len(got) != len(want) {
		t.Fatalf("%d lines do not match, want %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("mismatch %d is %q, want one of %s", i, got[i], want[i])
		}
	}
	if !strings.HasSuffix(got[1], "-> eu 6, us 5, and not: eu 6, us 6") {
		t.Errorf("%q does not say what came of it", got[1])
	}
}

func TestFaultyTranscripts(t *testing.T) {
	for text, want := range map[string]string{
		"":                                        "names no regions",
		"0s eu allow 1":                           `line 1: want a line that begins with "regions" first`,
		"regions":                                 "begins with",
		"regions EU":                              "0 regions are named (1 to 10",
		"regions eu eu":                           "region eu is named twice",
		"regions eu\nregions us":                  "line 2: regions are named twice",
		"regions eu nodes 9":                      `nodes is "9" (1 to 8)`,
		"regions eu limit -1/60s":                 `limit is "-1/60s" (0 to`,
		"regions eu limit 10":                     `the duration is "" (1s to`,
		"regions eu floor 1.5":                    `floor is "1.5" (0 to 1)`,
		"regions eu floor":                        `"floor" has no value`,
		"regions eu roof 1":                       "",
		"regions eu\n1x eu allow 1":               `line 2: the time is "1x"`,
		"regions eu\n2s eu publish\n1s * wipe":    "line 3: the time is 1s, before the line above",
		"regions eu\n0s us allow 1":               `region "us" is unknown (eu, *)`,
		"regions eu\n0s eu.2 allow 1":             `node "2" of eu is unknown (1 to 1)`,
		"regions eu\n0s eu":                       "want TIME WHO WHAT",
		"regions eu\n0s eu publish ->":            "nothing stands after ->",
		"regions eu\n0s eu jump":                  `"jump" is unknown (allow, batch`,
		"regions eu\n0s eu allow":                 "allow how much",
		"regions eu\n0s eu allow -1":              `the cost is "-1" (0 to`,
		"regions eu\n0s eu allow 1 x0":            `times is "x0" (x1 to x100000)`,
		"regions eu\n0s eu allow 1 K":             `the key is "K"`,
		"regions eu\n0s eu batch a 1, b":          `the batch's item is "b" (KEY COST)`,
		"regions eu\n0s eu cut power":             "cut what (redis, mysql)",
		"regions eu\n0s eu clock soon":            `the clock's shift is "soon"`,
		"regions eu\n0s eu wipe out":              `"out" after wipe`,
		"regions eu nodes +1":                     `nodes is "+1" (1 to 8)`,
		"regions eu nodes 01":                     `nodes is "01" (1 to 8)`,
		"regions eu limit +1/60s":                 `limit is "+1/60s" (0 to`,
		"regions eu limit 1/060s":                 `the duration is "060s" (1s to`,
		"regions eu floor +0.5":                   `floor is "+0.5" (0 to 1)`,
		"regions eu\n+1s eu publish":              `line 2: the time is "+1s"`,
		"regions eu\n0s eu.+1 allow 1":            `node "+1" of eu is unknown`,
		"regions eu\n0s eu allow +1":              `the cost is "+1" (0 to`,
		"regions eu\n0s eu allow 01":              `the cost is "01" (0 to`,
		"regions eu\n0s eu allow 1 x05":           `times is "x05" (x1 to`,
		"regions eu\n0s eu batch a 05":            `the cost is "05" (0 to`,
		"regions eu\n0s eu clock ++1s":            `the clock's shift is "++1s"`,
		"regions eu\n0s eu clock +-1s":            `the clock's shift is "+-1s"`,
		strings.Repeat("#", TranscriptBytesMax+1): "at most 65536",
	} {
		if _, err := ParseTranscript(text); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: want an error with %q, got %v", text, want, err)
		}
	}
}

// A transcript that is formatted and parsed again has the same scenes.
func FuzzParseTranscript(f *testing.F) {
	for _, file := range transcripts(f) {
		f.Add(read(f, file))
	}
	f.Fuzz(func(t *testing.T, text string) {
		script, err := ParseTranscript(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v is no ErrInvalid", err)
			}
			return
		}
		written := script.String()
		again, err := ParseTranscript(written)
		if err != nil {
			if len(written) > TranscriptBytesMax { // formatting adds every default
				return
			}
			t.Fatalf("%v, of %q, written for %q", err, written, text)
		}
		if again.String() != written {
			t.Fatalf("%q was written as %q and then as %q", text, written, again.String())
		}
	})
}

func transcripts(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	return files
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
