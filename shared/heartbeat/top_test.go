package heartbeat

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func topKey(nameBytes int) TopKey {
	name := bytes.Repeat([]byte{0xff}, nameBytes)
	return TopKey{Workspace: name[:min(nameBytes, 191)], Namespace: name, Identifier: name, DurationMs: 1000, Limit: -1, Count: 7}
}

// "Leaves out the last keys until it is at most TopBytesMax long", whatever the names.
func TestDocumentIsBounded(t *testing.T) {
	for _, nameBytes := range []int{1, 20, 100, 255} {
		var top Top
		for range TopKeysMax + 5 {
			top.Hot, top.Denied = append(top.Hot, topKey(nameBytes)), append(top.Denied, topKey(nameBytes))
		}
		document, err := top.Document()
		if err != nil || len(document) > TopBytesMax {
			t.Fatalf("%d bytes, %v", len(document), err)
		}
		read, err := ReadTop([]byte(document))
		if err != nil || len(read.Hot) == 0 || len(read.Hot) > TopKeysMax || len(read.Hot)-len(read.Denied) > 1 || !bytes.Equal(read.Hot[0].Identifier, top.Hot[0].Identifier) {
			t.Errorf("names of %d bytes: %d hot, %d denied, %v", nameBytes, len(read.Hot), len(read.Denied), err)
		}
	}
}

// "Refuses what no node can have meant", and says which field.
func TestReadTopNamesWhatIsWrong(t *testing.T) {
	for document, says := range map[string]string{
		"":                       "unexpected end",
		"{":                      "unexpected end",
		`{"hot":[{}]}`:           "hot[0]: workspace is 0 bytes",
		`{"denied":[{"w":"@"}]}`: "illegal base64",
		`{"hot":[{"w":"YQ==","n":"YQ==","i":"YQ==","d":0}]}`:                         "duration is 0",
		`{"hot":[{"w":"YQ==","n":"YQ==","i":"YQ==","d":1,"l":-2}]}`:                  "limit is -2",
		`{"denied":[{"w":"YQ==","n":"YQ==","i":"YQ==","d":1,"c":-1}]}`:               "count is -1",
		fmt.Sprintf(`{"x":"%s"}`, strings.Repeat("x", TopBytesMax)):                  "at most 16384",
		`{"hot":[{"w":"YQ==","n":"YQ==","i":"YQ==","d":1,"r":9000000000000000000}]}`: "regional",
		`{"denied":[{"w":"YQ==","n":"YQ==","i":"YQ==","d":1,"m":-9,"c":1}]}`:         "more is -9",
	} {
		if _, err := ReadTop([]byte(document)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %v, want %q", document, err, says)
		}
	}
}

// What is read can be written, and read again.
func FuzzReadTop(f *testing.F) {
	f.Add([]byte(`{"at_ms":1,"hot":[{"w":"YQ==","n":"Yg==","i":"Yw==","d":60000,"l":100,"c":40,"r":30}],"denied":[]}`))
	f.Add([]byte(`{"hot":[{"w":"YQ==","n":"Yg==","i":"Yw==","d":60000,"new":[1]}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		top, err := ReadTop(document)
		if err != nil {
			return
		}
		written, err := top.Document()
		if err != nil || len(written) > TopBytesMax {
			t.Fatalf("%d bytes, %v", len(written), err)
		}
		if _, err := ReadTop([]byte(written)); err != nil {
			t.Errorf("%q from %q: %v", written, document, err)
		}
	})
}
