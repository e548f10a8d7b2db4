package dataplane

import (
	"errors"

	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

var (
	// ErrInvalid is wrapped by every error about a request: the message names the
	// field and its bound. It is the very value of window.ErrInvalid.
	ErrInvalid = window.ErrInvalid

	// ErrRegionRequired is returned by New when there is somebody to share counts
	// with and no region to share them as.
	ErrRegionRequired = errors.New("dataplane: Config.Region is required when Origin or Settings is set")

	// ErrStarted is returned by Start on a limiter that was started or stopped before.
	ErrStarted = errors.New("dataplane: limiter was started before")

	// ErrStopped is returned by calls about reservations, tokens of leases and settings after
	// Limiter.Stop, because a stopped limiter makes no calls to the origin.
	ErrStopped = outbox.ErrStopped

	// ErrBusy is the error of calls about reservations and tokens of leases if this node already makes as
	// many calls to the origin as it may, 5 for each processor and shard, and the caller's turn has not
	// come within Config.ReadTimeout, 1 s at most (see WithCaller). The origin has not failed, so no outage
	// policy applies: the call is denied. Try again in a second.
	ErrBusy = outbox.ErrBusy

	// ErrNoSettings is returned by RefreshSettings on a limiter without Config.Settings.
	ErrNoSettings = errors.New("dataplane: Config.Settings is nil")

	// ErrOldSettings is returned when the settings just read are older than those in use, which are
	// kept. That happens if a relay has stopped and the read returned its last copy.
	ErrOldSettings = rules.ErrOld

	// ErrTopBusy is returned by TopKeys while another walk is under way, or the last one was
	// so long and so recent that the next would take more than a tenth of a processor.
	ErrTopBusy = errors.New("dataplane: the keys are being listed, or just were: try again in a second")
)
