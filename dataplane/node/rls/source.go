package rls

import (
	"fmt"
	"sync/atomic"

	"github.com/weirhq/weir/shared/reload"
)

// Source is the rules in force. They may be replaced while calls are decided: each
// call sees either all old ones or all new ones. The zero Source holds none.
type Source struct {
	*reload.Files // Check reads the files again, and keeps the rules in force if they are at fault

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

// Domains is how many there are rules for.
func (s *Source) Domains() int { return len(s.rules()) }

func (s *Source) rules() Rules {
	if rules := s.now.Load(); rules != nil {
		return *rules
	}
	return nil
}
