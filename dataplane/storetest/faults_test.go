package storetest_test

import (
	"testing"

	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
)

// A suite that nothing can fail proves nothing.
func TestEveryFaultIsFound(t *testing.T) { suite.FindFaults(t, "TestOriginSubject", allOriginFaults()) }
