package heartbeat

import (
	"fmt"
	"strings"
	"testing"
)

// A document with rows of any names that keep UsageRowsBytesMax fits into UsageBytesMax, and is read unchanged.
func TestUsageDocumentIsBounded(t *testing.T) {
	for _, length := range []int{1, 2, 3, 50, 191} {
		u, bytes := Usage{Number: countMax, OtherAccepted: countMax, OtherDenied: countMax,
			GoneAccepted: countMax, GoneDenied: countMax}, 0
		name := strings.Repeat("\xff", length)
		for len(u.Rows) < UsageRowsMax && bytes+UsageRowBytes(name, name) <= UsageRowsBytesMax {
			bytes += UsageRowBytes(name, name)
			u.Rows = append(u.Rows, UsageRow{[]byte(name), []byte(name), countMax, countMax, countMax})
		}
		document, err := u.Document()
		if err != nil {
			t.Fatalf("names of %d bytes, %d rows: %v", length, len(u.Rows), err)
		}
		if read, err := ReadUsage([]byte(document)); err != nil || len(read.Rows) != len(u.Rows) {
			t.Errorf("names of %d bytes: %d rows, %v", length, len(read.Rows), err)
		}
	}
}

func TestReadUsageNamesTheFieldAndTheBound(t *testing.T) {
	for document, says := range map[string]string{
		"{":                                  "unexpected end",
		`{"number":0}`:                       "number is 0 (1 to",
		`{"number":1,"other_accepted":-1}`:   "other accepted is -1 (0 to",
		`{"number":1,"gone_denied":-1}`:      "gone denied is -1 (0 to",
		`{"number":1,"rows":[{"n":"YQ=="}]}`: "row 0: workspace is 0 bytes long (1 to 191)",
		`{"number":1,"rows":[{"w":"YQ=="}]}`: "row 0: namespace is 0 bytes long (1 to 255)",
		`{"number":1,"rows":[{"w":"YQ==","n":"YQ==","a":-1}]}`:                "row 0: accepted is -1 (0 to",
		fmt.Sprintf(`{"x":"%s"}`, strings.Repeat("x", UsageBytesMax)):         "at most 32768",
		`{"number":1,"rows":[` + strings.Repeat(`{},`, UsageRowsMax) + `{}]}`: "rows: 201 (at most 200)",
	} {
		if _, err := ReadUsage([]byte(document)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %v, want %q", document, err, says)
		}
	}
}

// A namespace whose row was taken away and given back begins at 0 in a row with another number.
func TestUsageSince(t *testing.T) {
	w, n := []byte("w"), []byte("n")
	earlier := Usage{Number: 3, OtherAccepted: 10, Rows: []UsageRow{{w, n, 100, 10, 1}}}
	for name, c := range map[string]struct {
		later Usage
		want  UsageCost
		ok    bool
	}{
		"the same row":      {Usage{Number: 4, OtherAccepted: 10, Rows: []UsageRow{{w, n, 150, 11, 1}}}, UsageCost{50, 1}, true},
		"another row":       {Usage{Number: 4, OtherAccepted: 10, Rows: []UsageRow{{w, n, 5, 1, 2}}}, UsageCost{5, 1}, true},
		"a decrease":        {Usage{Number: 4, Rows: []UsageRow{{w, n, 5, 1, 1}}}, UsageCost{}, true},
		"the same report":   {earlier, UsageCost{}, false},
		"an earlier report": {Usage{Number: 2}, UsageCost{}, false},
	} {
		cost, ok := c.later.Since(&earlier)
		if ok != c.ok || cost[UsageOf{"w", "n"}] != c.want {
			t.Errorf("%s: %+v, %v", name, cost, ok)
		}
	}
}

// Cost of removed rows that no report had goes to the others. Documents of builds without these sums remove nothing.
func TestUsageSinceHasTheCostOfRemovedRows(t *testing.T) {
	w, n := []byte("w"), []byte("n")
	earlier := Usage{Number: 3, GoneAccepted: 7, Rows: []UsageRow{{w, n, 100, 10, 1}, {w, n, 5, 5, 2}}}
	kept := earlier.Rows[1:]
	for name, c := range map[string]struct {
		later Usage
		want  UsageCost
	}{
		"a row grew before its removal": {Usage{Number: 4, GoneAccepted: 127, GoneDenied: 11, Rows: kept}, UsageCost{20, 1}},
		"a row did not grow":            {Usage{Number: 4, GoneAccepted: 107, GoneDenied: 10, Rows: kept}, UsageCost{}},
		"a build without the sums":      {Usage{Number: 4, Rows: kept}, UsageCost{}},
	} {
		cost, ok := c.later.Since(&earlier)
		if !ok || cost[UsageOf{}] != c.want || cost[UsageOf{"w", "n"}] != (UsageCost{}) {
			t.Errorf("%s: %+v, %v", name, cost, ok)
		}
	}
}

func FuzzReadUsage(f *testing.F) {
	f.Add([]byte(`{"number":1,"rows":[{"w":"YQ==","n":"YQ==","a":1,"d":2,"r":3}],"other_accepted":4,"other_denied":5}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		u, err := ReadUsage(document)
		if err != nil {
			return
		}
		if cost, ok := u.Since(&Usage{}); !ok || len(cost) > UsageRowsMax+1 {
			t.Errorf("%d namespaces, %v", len(cost), ok)
		}
		for of, n := range func() map[UsageOf]UsageCost { c, _ := u.Since(&Usage{}); return c }() {
			if n.Accepted < 0 || n.Denied < 0 || n.Accepted > countMax || n.Denied > countMax {
				t.Errorf("%v: %+v", of, n)
			}
		}
	})
}
