package yamlvalue

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// field returns the value of the key x.
func field(t testing.TB, document string) *yaml.Node {
	t.Helper()
	var all map[string]yaml.Node
	if err := yaml.Unmarshal([]byte(document), &all); err != nil {
		t.Fatalf("%q: %v", document, err)
	}
	n := all["x"]
	return &n
}

func TestANumberOfADocumentIsWhatIsWritten(t *testing.T) {
	for document, want := range map[string]int64{"x: 10": 10, "x: 0": 0, "y: &a 7\nx: *a": 7, "{x: 3}": 3} {
		if n, err := Int("limit", field(t, document), 0, 100); err != nil || n != want {
			t.Errorf("%q is %d, %v", document, n, err)
		}
	}
	for document, says := range map[string]string{
		"x: 0100": `line 1: limit is "0100": want a whole number without leading zeros (0 to 100)`,
		"x: 0x10": "decimal digits", "x: 0o7": "decimal digits", "x: 0b1": "decimal digits", "x: 1_0": "decimal digits", "x: 0.5": "decimal digits",
		"x: 1e1": "decimal digits", "x: +1": "decimal digits", "x: .nan": "decimal digits", "x: .inf": "decimal digits", "x: 101": "limit is 101 (0 to 100)",
		"x: -1": "limit is -1 (0 to 100)", "x:": "limit has no value", "x: ~": "limit has no value", "x: null": "limit has no value",
		`x: ""`: "without quotes", `x: "10"`: "without quotes", "x: '10'": "without quotes", "x: |\n  10": "without quotes", `x: !!int "10"`: "without quotes",
		"x: [10]": "limit is a list", "x: {a: 1}": "limit is a mapping", "x: ten": "decimal digits", "x: yes": "decimal digits",
		"\n\nx: 1:30": "line 3: ",
	} {
		if n, err := Int("limit", field(t, document), 0, 100); err == nil || n != 0 || !strings.Contains(err.Error(), says) {
			t.Errorf("%q is %d, %v; want %q", document, n, err, says)
		}
	}
	if _, err := Int("limit", nil, 0, 100); err == nil || err.Error() != "limit has no value" {
		t.Errorf("a field that is not there: %v", err)
	}
}

func TestOtherValuesOfADocumentAreWhatIsWritten(t *testing.T) {
	if b, err := Bool("shadow", field(t, "x: true")); err != nil || !b {
		t.Errorf("%v, %v", b, err)
	}
	for _, document := range []string{"x: yes", "x: on", "x: 1", `x: "true"`, "x: True", "x:", "x: []"} {
		if b, err := Bool("shadow", field(t, document)); err == nil || b {
			t.Errorf("%q is %v", document, b)
		}
	}
	for document, want := range map[string]string{"x: on": "on", "x: 007": "007", "x: 1e3": "1e3", `x: ""`: "", "x: 2024-01-01": "2024-01-01"} {
		if text, err := Text("name", field(t, document)); err != nil || text != want {
			t.Errorf("%q is %q, %v", document, text, err)
		}
	}
	for _, document := range []string{"x: ' eu'", "x: ''", `x: "e\tu"`, "x:", "x: !!binary aGk=", "x: {}"} {
		if name, err := Name("region", field(t, document), 48); err == nil || !strings.HasPrefix(err.Error(), "line 1: region ") {
			t.Errorf("%q is the name %q, %v", document, name, err)
		}
	}
}

func FuzzInt(f *testing.F) {
	for _, seed := range []string{"x: 1", "x: 0100", "x: &a 1", "x: !!str 1", "x: [1]", "x: 1_000", "x: 0.5", "? x\n: 1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		var all map[string]yaml.Node
		if yaml.Unmarshal([]byte(document), &all) != nil {
			return
		}
		n := all["x"]
		value, err := Int("x", &n, math.MinInt64, math.MaxInt64)
		if err == nil && !strings.Contains(document, strconv.FormatInt(value, 10)) {
			t.Errorf("%q is read as %d", document, value)
		}
	})
}
