package tunings

import (
	"context"
	"encoding/json"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/shared/tuning"
)

// TrialStore keeps trials. All methods may be called at once.
type TrialStore interface {
	// WriteTrials writes trials and an entry of the audit log in one transaction, in order, and answers their numbers. A
	// write whose ID is there already, with the same document and region, is left out and its number answered; where its
	// bound is larger the trial gets it, and keeps its end. One that is refused undoes them all.
	WriteTrials(ctx context.Context, writes []TrialWrite, e audit.Entry) (TrialsWritten, error)
	// RenewTrials moves the ends of the trials that these writes made, all or none. One that is over stays so.
	RenewTrials(ctx context.Context, ids []string, leaseMs int64) (TrialsRenewed, error)
	// EndTrials ends the trials of writes, and answers their numbers. A write that has not been made never will be.
	EndTrials(ctx context.Context, writes []TrialWrite) (numbers []int64, err error)
}

// TrialEntry is the audit row of trials that begin as one.
func TrialEntry(writes []TrialWrite, by controlplane.By) (audit.Entry, error) {
	after := struct {
		Regions []string           `json:"regions"`
		Tuning  json.RawMessage    `json:"tuning"`
		Shares  map[string]float64 `json:"shares,omitempty"` // of a region's nodes, by their hash; absent: all
	}{Tuning: json.RawMessage(writes[0].Document), Shares: map[string]float64{}}
	for _, w := range writes {
		after.Regions = append(after.Regions, w.Region)
		if w.Below < tuning.TrialShares {
			after.Shares[w.Region] = float64(w.Below) / tuning.TrialShares
		}
	}
	b, err := json.Marshal(after)
	if err != nil {
		return audit.Entry{}, err
	}
	e := audit.Entry{By: by, Action: "rollout.try", Subject: "trial " + writes[0].ID, After: string(b)}
	return e, e.Validate()
}

// HashOf is the hash of a document, empty for none.
func HashOf(document string) string {
	t, err := tuning.Read([]byte(document))
	if err != nil {
		return ""
	}
	return t.Hash()
}
