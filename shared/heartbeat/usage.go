package heartbeat

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Bounds of a node's report of usage.
const (
	// UsageRowsMax is how many namespaces a node reports by name.
	UsageRowsMax = 200
	// UsageBytesMax bounds the document they are reported in.
	UsageBytesMax = 32 << 10
	// UsageEvery is the least time between two reports with different figures.
	UsageEvery = 15 * time.Second

	// UsageForgottenAfter is how long the totals of a process are kept after its last report. If a process that ran for
	// longer than UsageNewFor reports and its totals are missing, they may have been counted. Then the report is stored
	// as the base of later reports, and only its later cost is counted.
	UsageForgottenAfter = 7 * 24 * time.Hour
	// UsageNewFor is shorter than UsageForgottenAfter, because the clocks of nodes can differ from the database's.
	UsageNewFor = 6 * 24 * time.Hour
)

// Usage has the cost that a process has accepted and denied since it started, by namespace. All figures only grow while
// a row exists, and the figures of a removed row stay in the sums of removed rows. So a later report has everything
// that an earlier, lost report had. Readers must accept documents of
// older and newer builds, so fields are only ever added.
//
// Accepted is cost that the origin has confirmed, or that can never reach it any more. Refunds are deducted. Denied
// is an estimate from a sample of the denials, as in TopKey. It includes cost that only shadow mode let pass.
type Usage struct {
	Number int64      `json:"number"` // of the report, ascending within the process, from 1
	Rows   []UsageRow `json:"rows,omitempty"`

	// These are the cost of namespaces that had no row, because the node had UsageRowsMax namespaces with more cost.
	OtherAccepted int64 `json:"other_accepted"`
	OtherDenied   int64 `json:"other_denied"`

	// These are the cost of all rows that the process has removed. It goes to the others, as far as no report had it, so
	// cost is counted even if all reports between the row's last cost and its removal were lost.
	GoneAccepted int64 `json:"gone_accepted,omitempty"`
	GoneDenied   int64 `json:"gone_denied,omitempty"`
}

// UsageRow is the part of a namespace. Names are bytes, encoded in base64.
type UsageRow struct {
	Workspace []byte `json:"w"`
	Namespace []byte `json:"n"`
	Accepted  int64  `json:"a"`
	Denied    int64  `json:"d"`

	// Row distinguishes the rows of a process. A namespace that has lost its row, and gets another, begins at 0.
	Row int64 `json:"r"`
}

// usageNumbersBytes is at least the length of a row in a document without its names.
const usageNumbersBytes = len(`{"w":"","n":"","a":,"d":,"r":},`) + 3*20

// UsageRowBytes returns the most bytes that the row of a namespace can take in a document.
func UsageRowBytes(workspace, namespace string) int {
	base64 := func(bytes int) int { return (bytes + 2) / 3 * 4 }
	return base64(len(workspace)) + base64(len(namespace)) + usageNumbersBytes
}

// UsageRowsBytesMax is the highest sum of UsageRowBytes of a document.
const UsageRowsBytesMax = UsageBytesMax - 256

// Document writes u. Its rows must keep UsageRowsBytesMax.
func (u *Usage) Document() (string, error) {
	b, err := json.Marshal(u)
	if err == nil && len(b) > UsageBytesMax {
		err = fmt.Errorf("%d bytes (at most %d)", len(b), UsageBytesMax)
	}
	if err != nil {
		return "", fmt.Errorf("write usage: %w", err)
	}
	return string(b), nil
}

// ReadUsage reads a document of any build.
func ReadUsage(document []byte) (u Usage, err error) {
	if len(document) > UsageBytesMax {
		return u, fmt.Errorf("usage: %d bytes (at most %d)", len(document), UsageBytesMax)
	}
	if err := json.Unmarshal(document, &u); err != nil {
		return Usage{}, fmt.Errorf("usage: %w", err)
	}
	if err := u.validate(); err != nil {
		return Usage{}, fmt.Errorf("usage: %w", err)
	}
	return u, nil
}

func (u *Usage) validate() error {
	if len(u.Rows) > UsageRowsMax {
		return fmt.Errorf("rows: %d (at most %d)", len(u.Rows), UsageRowsMax)
	}
	if err := validateNumbers([]number{{"number", u.Number, 1}, {"other accepted", u.OtherAccepted, 0},
		{"other denied", u.OtherDenied, 0}, {"gone accepted", u.GoneAccepted, 0},
		{"gone denied", u.GoneDenied, 0}}); err != nil {
		return err
	}
	for i := range u.Rows {
		if err := u.Rows[i].validate(); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}

func (r *UsageRow) validate() error {
	if n := len(r.Workspace); n < 1 || n > window.WorkspaceBytesMax {
		return fmt.Errorf("workspace is %d bytes long (1 to %d)", n, window.WorkspaceBytesMax)
	}
	if n := len(r.Namespace); n < 1 || n > window.NamespaceBytesMax {
		return fmt.Errorf("namespace is %d bytes long (1 to %d)", n, window.NamespaceBytesMax)
	}
	return validateNumbers([]number{{"accepted", r.Accepted, 0}, {"denied", r.Denied, 0}, {"row", r.Row, 0}})
}

// UsageOf names a namespace. Both names are empty for the cost of all namespaces without a row.
type UsageOf struct{ Workspace, Namespace string }

// UsageCost is accepted and denied cost.
type UsageCost struct{ Accepted, Denied int64 }

// Since returns the cost that a process has had between an earlier report, or its start if that is the zero Usage, and
// u. If u is not newer, ok is false, because its cost was counted with the earlier report.
func (u *Usage) Since(earlier *Usage) (cost map[UsageOf]UsageCost, ok bool) {
	if u.Number <= earlier.Number {
		return nil, false
	}
	counted := make(map[int64]*UsageRow, len(earlier.Rows))
	for i := range earlier.Rows {
		counted[earlier.Rows[i].Row] = &earlier.Rows[i]
	}
	cost = make(map[UsageOf]UsageCost, len(u.Rows)+1)
	add := func(of UsageOf, accepted, denied int64) {
		was := cost[of]
		cost[of] = UsageCost{addUsage(was.Accepted, accepted), addUsage(was.Denied, denied)}
	}
	add(UsageOf{}, u.OtherAccepted-earlier.OtherAccepted, u.OtherDenied-earlier.OtherDenied)
	// The gone cost that remains after this loop is new: no earlier report had it.
	gone := UsageCost{u.GoneAccepted - earlier.GoneAccepted, u.GoneDenied - earlier.GoneDenied}
	for i := range u.Rows {
		r, base := &u.Rows[i], UsageRow{}
		if was := counted[r.Row]; was != nil {
			base = *was
			delete(counted, r.Row)
		}
		add(UsageOf{string(r.Workspace), string(r.Namespace)}, r.Accepted-base.Accepted, r.Denied-base.Denied)
	}
	for _, removed := range counted {
		gone.Accepted, gone.Denied = max(0, gone.Accepted-removed.Accepted), max(0, gone.Denied-removed.Denied)
	}
	add(UsageOf{}, gone.Accepted, gone.Denied)
	return cost, true
}

// addUsage adds cost, and ignores a decrease, which no node reports. It stops at countMax.
func addUsage(sum, cost int64) int64 {
	if cost = max(0, cost); sum > countMax-cost {
		return countMax
	}
	return sum + cost
}
