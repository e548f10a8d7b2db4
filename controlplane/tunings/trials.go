package tunings

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

// TrialStore keeps trials. All methods may be called at once.
type TrialStore interface {
	// WriteTrials must write trials and an entry of the audit log in a single transaction, in order, and return their
	// numbers. If a write's ID exists already, with the same document and region, it must leave the write out and return
	// the existing number. If the write's bound is larger, the trial gets the larger bound, and keeps its end. If any
	// write is rejected, all must be undone.
	WriteTrials(ctx context.Context, writes []TrialWrite, e audit.Entry) (TrialsWritten, error)
	// RenewTrials must move the ends of the trials that these writes made, all or none. A trial that has ended stays
	// ended. With a change of limits it must renew none of them if an item is no longer as before the change.
	RenewTrials(ctx context.Context, ids []string, leaseMs int64, limits *settings.Change) (TrialsRenewed, error)
	// EndTrials must end the trials of writes, and return their numbers. A write that has not been made must never be made
	// later.
	EndTrials(ctx context.Context, writes []TrialWrite) (numbers []int64, err error)
}

// TrialEntry returns the audit row of trials that begin together.
func TrialEntry(writes []TrialWrite, by controlplane.By) (audit.Entry, error) {
	after := struct {
		Regions []string           `json:"regions"`
		Tuning  json.RawMessage    `json:"tuning,omitempty"`
		Limits  json.RawMessage    `json:"limits,omitempty"` // of a trial of limits, or its digest if it is too long
		Shares  map[string]float64 `json:"shares,omitempty"` // of a region's nodes, by their hash; absent: all
	}{Shares: map[string]float64{}}
	document := json.RawMessage(writes[0].Document)
	ofLimits := settings.IsLimitsTrial(document)
	if ofLimits {
		after.Limits = document
	} else {
		after.Tuning = document
	}
	for _, w := range writes {
		after.Regions = append(after.Regions, w.Region)
		if w.Below < tuning.TrialShares {
			after.Shares[w.Region] = float64(w.Below) / tuning.TrialShares
		}
	}
	b, err := json.Marshal(after)
	if err == nil && ofLimits && len(b) > audit.StateBytesMax {
		after.Limits = json.RawMessage(strconv.Quote(controlplane.Digest(document)))
		b, err = json.Marshal(after)
	}
	if err != nil {
		return audit.Entry{}, err
	}
	e := audit.Entry{By: by, Action: "rollout.try", Subject: "trial " + writes[0].ID, After: string(b)}
	return e, e.Validate()
}

// HashOf returns the hash of a document, empty for none.
func HashOf(document string) string {
	t, err := tuning.Read([]byte(document))
	if err != nil {
		return ""
	}
	return t.Hash()
}
