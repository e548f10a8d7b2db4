package handlers

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Internal handlers are private: what Weir's objects send to themselves and to one another is
// refused to callers at the ingress. A handler is one or the other, by this list.
func TestInternalHandlersArePrivate(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	operators := map[string]string{
		CronService:       "Start Ensure Pause Resume TriggerNow Status Document",
		RolloutsService:   "Start TakeBack List Standing Repair",
		RolloutService:    "Operate Status Ensure",
		RetirementService: "Start Approve Abort Status List Ensure",
	}
	var answer struct {
		Services []struct {
			Name     string
			Type     string `json:"ty"`
			Handlers []struct{ Name string }
		}
	}
	c.admin(http.MethodGet, "/services", nil, &answer)
	internal := 0
	for _, s := range answer.Services {
		for _, h := range s.Handlers {
			if strings.Contains(" "+operators[s.Name]+" ", " "+h.Name+" ") {
				continue
			}
			internal++
			path := "/" + s.Name + "/key/" + h.Name
			if s.Type == "Service" {
				path = "/" + s.Name + "/" + h.Name
			}
			res, err := c.http.Post(c.restate.IngressURL()+path, "application/json", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || res.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "not public") {
				t.Errorf("%s takes calls from outside: %s %s %v", path, res.Status, body, err)
			}
		}
	}
	if internal < 5 {
		t.Errorf("%d internal handlers: the list of services is not what it was", internal)
	}
}
