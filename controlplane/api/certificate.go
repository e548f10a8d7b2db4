package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
)

// SubjectsMax bounds the number of certificate subjects that have a role.
const SubjectsMax = 1000

// ValidateSubjects reports the first subject that has no role, or that a certificate or an audit entry cannot have.
func ValidateSubjects(subjects map[string]access.Role) error {
	if n := len(subjects); n > SubjectsMax {
		return fmt.Errorf("%w: %d subjects have a role (at most %d)", controlplane.ErrInvalid, n, SubjectsMax)
	}
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		if err := (controlplane.By{Actor: subject, Reason: "configuration"}).Validate(); err != nil {
			return fmt.Errorf("subject %q: %w", subject, err)
		}
		if role := subjects[subject]; !role.May(access.RoleViewer) {
			return fmt.Errorf("%w: subject %q has the role %q (viewer, operator or admin)", controlplane.ErrInvalid, subject,
				role)
		}
	}
	return nil
}

type certificateKey struct{}

// certified stores the subject of a call's verified certificate in the context. Calls of the console are made within
// this process, so they have no connection and no subject.
func (s *service) certified(next http.Handler) http.Handler {
	if len(s.Subjects) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subject := subjectOf(r.TLS, time.Now()); subject != "" {
			r = r.WithContext(context.WithValue(r.Context(), certificateKey{}, subject))
		}
		next.ServeHTTP(w, r)
	})
}

// subjectOf returns the subject of a caller's verified certificate: its URI, as in a SPIFFE certificate, or else its
// common name. It returns an empty text if there is no certificate, if it has expired since the connection was made, if
// it has several URIs, or if its common name looks like a URI, because authorities check common names less carefully.
func subjectOf(state *tls.ConnectionState, now time.Time) string {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return ""
	}
	leaf := state.PeerCertificates[0]
	switch {
	case now.After(leaf.NotAfter), len(leaf.URIs) > 1:
		return ""
	case len(leaf.URIs) == 1:
		return leaf.URIs[0].String()
	case strings.Contains(leaf.Subject.CommonName, "://"):
		return ""
	}
	return leaf.Subject.CommonName
}

// certificateHolder returns the identity of a caller whose certificate has a role. The call's token and actor are
// ignored.
func (s *service) certificateHolder(ctx context.Context) (access.Identity, bool) {
	subject, _ := ctx.Value(certificateKey{}).(string)
	role, ok := s.Subjects[subject]
	if subject == "" || !ok {
		return access.Identity{}, false
	}
	return access.Identity{Name: subject, Role: role}, true
}
