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

// SubjectsMax bounds the subjects of certificates that have a role.
const SubjectsMax = 1000

// ValidateSubjects reports the first subject that no certificate can have, no audit log can name, or that has no role.
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

// certified remembers which subject the verified certificate of a call is of. Calls of the console, which are made in
// this process, come from no connection and have none.
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

// subjectOf is the subject of a caller's certificate that the server has verified: its URI, as a SPIFFE certificate has
// one, or else its common name. Empty: there is no certificate, it has expired since the connection was made, it has
// several URIs, or its common name looks like a URI, which authorities sign with less care.
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

// certificateHolder is who a call is made by if its certificate has a role, whatever token or name it gives.
func (s *service) certificateHolder(ctx context.Context) (access.Identity, bool) {
	subject, _ := ctx.Value(certificateKey{}).(string)
	role, ok := s.Subjects[subject]
	if subject == "" || !ok {
		return access.Identity{}, false
	}
	return access.Identity{Name: subject, Role: role}, true
}
