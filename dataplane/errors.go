package dataplane

import (
	"errors"

	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

var (
	// ErrInvalid is wrapped by every error about a request. The message names the field and its bound. It is the same
	// value as window.ErrInvalid.
	ErrInvalid = window.ErrInvalid

	// ErrRegionRequired is returned by New if Origin or Settings is set without a Region under which to publish counts.
	ErrRegionRequired = errors.New("dataplane: Config.Region is required when Origin or Settings is set")

	// ErrStarted is returned by Start on a limiter that was started or stopped before.
	ErrStarted = errors.New("dataplane: limiter was started before")

	// ErrStopped is returned by calls about reservations, tokens of leases and settings after Limiter.Stop, because a
	// stopped limiter makes no calls to the origin.
	ErrStopped = outbox.ErrStopped

	// ErrBusy is the error of calls about reservations and tokens of leases if this node has no room for another call to
	// the origin. A node makes at most 5 calls at once for each processor and shard. ErrBusy is returned if the caller's
	// turn has not come within Config.ReadTimeout, 1 s at most (see WithCaller). The origin has not failed, so no outage
	// policy applies: the call is denied. You can retry in a second.
	ErrBusy = outbox.ErrBusy

	// ErrNoSettings is returned by RefreshSettings on a limiter without Config.Settings.
	ErrNoSettings = errors.New("dataplane: Config.Settings is nil")

	// ErrOldSettings is returned when the settings just read are older than the settings in use, which are kept. For
	// example, a relay has stopped, and the read returned its last copy.
	ErrOldSettings = rules.ErrOld

	// ErrTopBusy is returned by TopKeys while another walk of the table is running. It is also returned if the last walk
	// was so long and so recent that the next walk would use more than a tenth of a processor.
	ErrTopBusy = errors.New("dataplane: the keys are being listed, or just were: try again in a second")
)
