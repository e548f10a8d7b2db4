package controlplane

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// ApproversMax bounds Quorum.Approvers.
	ApproversMax = 10

	// ApprovalTTLDefault is the default of Quorum.ApprovalTTLMs.
	ApprovalTTLDefault = 24 * time.Hour

	approvalTTLMax = 30 * 24 * time.Hour

	// approvalAheadMax is how far the clocks of weir-control's processes may be apart.
	approvalAheadMax = time.Minute
)

// Quorum is how many people must approve a step, and for how long an approval counts. The person who started the work
// may be one of the approvers: with two approvers, at least one other person has agreed. Two names are certainly two
// people only if the API requires tokens or certificates. So the API rejects more than one approver elsewhere.
type Quorum struct {
	Approvers     int   `json:"approvers,omitempty"`       // different actors, 1 to ApproversMax; 0: 1
	ApprovalTTLMs int64 `json:"approval_ttl_ms,omitempty"` // 1 s to 30 days; 0: 24 h
}

// Validate reports the first field outside its bounds.
func (q Quorum) Validate() error {
	if q.Approvers < 0 || q.Approvers > ApproversMax {
		return fmt.Errorf("%w: approvers is %d (1 to %d)", ErrInvalid, q.Approvers, ApproversMax)
	}
	if q.ApprovalTTLMs == 0 {
		return nil
	}
	return ValidateMs("approval_ttl_ms", q.ApprovalTTLMs, time.Second, approvalTTLMax)
}

// Need returns how many people must approve.
func (q Quorum) Need() int { return max(1, q.Approvers) }

// TTL returns for how long an approval counts.
func (q Quorum) TTL() time.Duration {
	if q.ApprovalTTLMs == 0 {
		return ApprovalTTLDefault
	}
	return time.Duration(q.ApprovalTTLMs) * time.Millisecond
}

// Approval is a person's approval of the evidence that the person was shown.
type Approval struct {
	By
	AtMs     int64  `json:"at_ms"`
	Evidence string `json:"evidence"`
}

// Counting returns the approvals that count now: they are for this evidence and have not expired. An approval from more
// than approvalAheadMax in the future does not count. It was given while the clock was ahead, and would otherwise count
// for longer by that much.
func (q Quorum) Counting(given []Approval, evidence string, nowMs int64) []Approval {
	return slices.DeleteFunc(slices.Clone(given), func(a Approval) bool {
		return a.Evidence != evidence || q.left(a, nowMs) == 0
	})
}

// left returns the time until an approval expires.
func (q Quorum) left(a Approval, nowMs int64) time.Duration {
	given := time.Duration(nowMs-a.AtMs) * time.Millisecond
	if given < -approvalAheadMax {
		return 0
	}
	return max(0, q.TTL()-max(0, given))
}

// With returns the given approvals and another, or the problem because of which the new approval does not count. If a
// given approval has expired, or approves other evidence, it adds none: the step must first be presented again. So a
// message that arrives twice does not renew its own approval.
func (q Quorum) With(given []Approval, one Approval) (after []Approval, problem string) {
	has := func(a Approval) bool { return a.Actor == one.Actor }
	switch {
	case len(q.Counting(given, one.Evidence, one.AtMs)) < len(given):
		return nil, "an earlier approval has just expired, or its evidence has changed: look at the status again in a moment"
	case slices.ContainsFunc(given, has):
		return nil, fmt.Sprintf("%s has approved it already; %d more by other people needed", one.Actor, q.Need()-len(given))
	}
	return append(slices.Clip(given), one), ""
}

// UntilExpiry returns the time until the first of the approvals expires; less than 0: there are none.
func (q Quorum) UntilExpiry(given []Approval, nowMs int64) time.Duration {
	first := time.Duration(-1)
	for _, a := range given {
		left := q.left(a, nowMs)
		if first < 0 || left < first {
			first = left
		}
	}
	return first
}

// evidenceShown is how many characters of an evidence's name histories and the audit log have.
const evidenceShown = 12

// ShortEvidence returns the beginning of the name of evidence, as histories and the audit log have it.
func ShortEvidence(evidence string) string { return evidence[:min(len(evidence), evidenceShown)] }

// Digest names evidence. The name only changes if the evidence does.
func Digest(evidence any) string {
	text, err := json.Marshal(evidence)
	if err != nil {
		panic(err) // texts and integers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// ActorsOf returns the actors of approvals, and more.
func ActorsOf(given []Approval, more ...string) []string {
	for _, a := range given {
		more = append(more, a.Actor)
	}
	return more
}

// WithoutEnded returns the approvals whose credentials have not ended. void names the other
// approvals with the reasons; it is empty if there are none.
func WithoutEnded(given []Approval, ended map[string]string) (left []Approval, void string) {
	var reasons []string
	left = slices.DeleteFunc(slices.Clone(given), func(a Approval) bool {
		why, gone := ended[a.Actor]
		if gone {
			reasons = append(reasons, fmt.Sprintf("the approval of %s no longer counts, because %s", a.Actor, why))
		}
		return gone
	})
	return left, strings.Join(reasons, "; ")
}
