package node

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
)

// The guide to errors shows the code and the HTTP status with which callers get each error.
func TestThePageOfErrorsHasTheirCodes(t *testing.T) {
	page, err := os.ReadFile("../guides/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]string)
	row := regexp.MustCompile("(?m)^\\| `dataplane\\.(Err\\w+)` \\|[^|]*\\| (\\w+, \\d+) \\|")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		shown[m[1]] = m[2]
	}
	for name, err := range map[string]error{
		"ErrInvalid":         dataplane.ErrInvalid,
		"ErrStopped":         dataplane.ErrStopped,
		"ErrTopBusy":         dataplane.ErrTopBusy,
		"ErrBusy":            dataplane.ErrBusy,
		"ErrNoReservation":   dataplane.ErrNoReservation,
		"ErrReservationUsed": dataplane.ErrReservationUsed,
		"ErrReservationOver": dataplane.ErrReservationOver,
		"ErrReservations":    dataplane.ErrReservations,
		"ErrTooManyKeys":     dataplane.ErrTooManyKeys,
		"ErrTooManyWaiters":  dataplane.ErrTooManyWaiters,
		"ErrTooManyLeases":   dataplane.ErrTooManyLeases,
	} {
		var refusal *connect.Error
		if !errors.As(refusalOfCall(err), &refusal) {
			t.Fatalf("%s has no code", name)
		}
		request := httptest.NewRequest(http.MethodPost, "/weir.v1.RateLimitService/Reserve", nil)
		request.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		if err := connect.NewErrorWriter().Write(answer, request, refusal); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%s, %d", refusal.Code(), answer.Code); shown[name] != want {
			t.Errorf("%s: %q on the page, callers get %q", name, shown[name], want)
		}
		delete(shown, name)
	}
	for name := range shown {
		t.Errorf("%s has a code on the page, and no test", name)
	}
}
