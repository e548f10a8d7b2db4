package console

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// base is the fleet's tuning in force. The form of a rollout begins with it and is compared with it.
type base struct {
	Document string
	Version  int64
	Others   []string // regions whose own tuning differs
	Seen     string   // mark of the tunings with which the form was shown
	all      string   // all documents in force
}

// Mark identifies all documents in force. It changes whenever the tuning of a region changes.
func (b base) Mark() string {
	sum := sha256.Sum256([]byte(b.all))
	return hex.EncodeToString(sum[:8])
}

func (c rolloutPages) tuningInForce(v *viewer) (b base, err error) {
	answer, err := apiclient.Ask(v.ctx, c.backend.Rollouts.GetTuning, &controlv1.GetTuningRequest{})
	if err != nil {
		return b, err
	}
	var all strings.Builder
	for i, t := range answer.GetTunings() { // the fleet's tuning comes first
		all.WriteString(t.GetRegion() + "\x00" + t.GetDocument() + "\x00")
		if i == 0 {
			b.Document, b.Version = t.GetDocument(), t.GetVersion()
		} else if t.GetDocument() != b.Document {
			b.Others = append(b.Others, t.GetRegion())
		}
	}
	b.all = all.String()
	return b, nil
}

// filledIn returns the form as it was sent, with the tuning that is in force now. If the tuning cannot be read,
// filledIn sends the response and returns false.
func (c rolloutPages) filledIn(w http.ResponseWriter, r *http.Request, v *viewer) (form planForm, ok bool) {
	inForce, err := c.tuningInForce(v)
	if err != nil {
		c.broken(w, r, v, err)
		return form, false
	}
	form = readPlanForm(r.PostForm, inForce)
	form.Regions = c.regions(r)
	return form, true
}

// Differs returns the fields in which the form differs from the tuning in force.
func (f planForm) Differs() (changed []tuned) {
	for _, t := range f.Tuning {
		if t.Changed() {
			changed = append(changed, t)
		}
	}
	return changed
}
