package rls

import (
	"fmt"
	"sync/atomic"

	"github.com/weirhq/weir/shared/reload"
)

// Source has the rules in force. They can be replaced while calls are decided: each call uses either all old or all new
// rules. The zero Source has no rules.
type Source struct {
	*reload.Files // Check reads the files again, and keeps the rules in force if the files are invalid

	now atomic.Pointer[Rules]
}

// OpenRules reads rules from files: see Parse. A folder means its *.yaml and *.yml files.
func OpenRules(paths ...string) (*Source, error) {
	s := new(Source)
	files, err := reload.Open(paths, func(files []reload.File) error {
		rules, err := Parse(files)
		if err == nil {
			s.now.Store(&rules)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open rules: %w", err)
	}
	s.Files = files
	return s, nil
}

// Domains returns the number of domains with rules.
func (s *Source) Domains() int { return len(s.rules()) }

func (s *Source) rules() Rules {
	if rules := s.now.Load(); rules != nil {
		return *rules
	}
	return nil
}
