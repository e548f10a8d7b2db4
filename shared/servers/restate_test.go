package servers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func restateCall(t *testing.T, method, url, body string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	answer, err := call(t.Context(), client, method, url, body)
	must(t, err)
	return string(answer)
}

// registerService registers a deployment with one service, which is never called.
func registerService(t *testing.T, r *Restate, name string) {
	t.Helper()
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.restate.endpointmanifest.v3+json")
		_, _ = fmt.Fprintf(w, `{"protocolMode":"REQUEST_RESPONSE","minProtocolVersion":5,"maxProtocolVersion":5,
			"services":[{"name":%q,"ty":"SERVICE","handlers":[{"name":"Do"}]}]}`, name)
	}))
	defer handler.Close()
	restateCall(t, http.MethodPost, r.AdminURL()+"/deployments", fmt.Sprintf(`{"uri":%q,"use_http_11":true}`, handler.URL))
}

// "Everything that it has acknowledged survives Kill and Restart": registered services, and the cluster itself.
func TestRestateSurvivesKill(t *testing.T) {
	t.Parallel()
	r := RestateForTest(t)
	registerService(t, r, "Lasting")
	health := restateCall(t, http.MethodGet, r.AdminURL()+"/cluster-health", "")
	if !strings.Contains(health, `"cluster_name":"weir"`) || !strings.Contains(health, `"members":[1]`) {
		t.Errorf("cluster health %s: want a cluster weir with member 1", health)
	}
	marker := fingerprint(t, r)
	urls := []string{r.IngressURL(), r.AdminURL(), r.FabricURL()}

	must(t, r.Kill())
	for _, url := range urls {
		mustRefuse(t, strings.TrimPrefix(url, "http://"))
	}
	must(t, r.Restart(t.Context()))

	if again := []string{r.IngressURL(), r.AdminURL(), r.FabricURL()}; fmt.Sprint(again) != fmt.Sprint(urls) {
		t.Errorf("restarted on %v, was on %v", again, urls)
	}
	if again := restateCall(t, http.MethodGet, r.AdminURL()+"/cluster-health", ""); again != health {
		t.Errorf("cluster health %s, was %s", again, health)
	}
	if again := fingerprint(t, r); again != marker {
		t.Errorf("another cluster was provisioned: %s, was %s", again, marker)
	}
	if services := restateCall(t, http.MethodGet, r.AdminURL()+"/services", ""); !strings.Contains(services, `"Lasting"`) {
		t.Errorf("the registered service is gone: %s", services)
	}
}

func fingerprint(t *testing.T, r *Restate) string {
	t.Helper()
	lines := restateCall(t, http.MethodGet, r.FabricURL()+"/metrics", "")
	if !strings.Contains(lines, `cluster_name="weir",node_name="weir-1"`) {
		t.Error("the metrics are not those of node weir-1 in cluster weir")
	}
	marker, err := os.ReadFile(filepath.Join(r.Dir(), "weir-1", ".cluster-marker"))
	must(t, err)
	return string(marker)
}

// A backup is a copy of the directory; it also starts on other ports and elsewhere.
func TestRestateStartsFromCopy(t *testing.T) {
	t.Parallel()
	original, err := StartRestate(t.Context(), RestateOptions{Options: Options{Dir: t.TempDir()}})
	must(t, err)
	registerService(t, original, "CopiedOnce")
	must(t, original.Stop())
	restored := t.TempDir()
	must(t, os.CopyFS(restored, os.DirFS(original.Dir())))

	again, err := StartRestate(t.Context(), RestateOptions{Options: Options{Dir: restored}})
	must(t, err)
	defer func() { must(t, again.Stop()) }()
	if again.AdminURL() == original.AdminURL() {
		t.Errorf("both on %s", again.AdminURL())
	}
	if services := restateCall(t, http.MethodGet, again.AdminURL()+"/services", ""); !strings.Contains(services, `"CopiedOnce"`) {
		t.Errorf("the copy does not know the service: %s", services)
	}
}

// Tests run the configuration of operators: the file's settings reach the server, and only the named differences
// override them.
func TestRestateRunsOperatorsConfiguration(t *testing.T) {
	t.Setenv("RESTATE_CLUSTER_NAME", "somebody-elses")
	t.Setenv("DO_NOT_TRACK", "") // only the file must turn telemetry off
	must(t, os.Unsetenv("DO_NOT_TRACK"))
	program, err := FindRestate()
	must(t, err)
	config, err := restateConfig("")
	must(t, err)
	r := &Restate{ingress: newPort(1), admin: newPort(2), fabric: newPort(3)}
	cmd := exec.CommandContext(t.Context(), program, "--config-file", config, "--dump-config")
	cmd.Env = r.environment(RestateOptions{Env: []string{"RESTATE_WORKER__INVOKER__INACTIVITY_TIMEOUT=200ms",
		"RESTATE_ADMIN__DISABLE_WEB_UI=true"}})
	dump, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, dump)
	}
	for _, want := range []string{
		`disable-telemetry = true`,
		`node-name = "weir-1"`,
		`cluster-name = "weir"`,
		`bind-ip = "127.0.0.1"`,
		`listen-mode = "tcp"`,
		`default-num-partitions = 4`,
		`inactivity-timeout = "200ms"`,
		`disable-web-ui = true`,
		"[ingress]\nlisten-mode = \"tcp\"\nbind-ip = \"127.0.0.1\"\nbind-port = 1\n",
		"[admin]\nlisten-mode = \"tcp\"\nbind-ip = \"127.0.0.1\"\nbind-port = 2\n",
		"bind-ip = \"127.0.0.1\"\nbind-port = 3\n",
	} {
		if !strings.Contains(string(dump), want) {
			t.Errorf("the server's configuration lacks %q", want)
		}
	}
}

// The version is exact, and can be installed from any registry for which npm is configured.
func TestRestatePin(t *testing.T) {
	t.Parallel()
	home, err := restateHome()
	must(t, err)
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	raw, err := os.ReadFile(filepath.Join(home, "package.json"))
	must(t, err)
	must(t, json.Unmarshal(raw, &manifest))
	pin := manifest.Dependencies["@restatedev/restate-server"]
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(pin) {
		t.Fatalf("restate-server is pinned to %q, want one exact version", pin)
	}
	lock, err := os.ReadFile(filepath.Join(home, "package-lock.json"))
	must(t, err)
	if strings.Contains(string(lock), "://") || strings.Contains(string(lock), `"resolved"`) {
		t.Error("package-lock.json names hosts")
	}
	program := pinnedRestate(home)
	out, err := exec.CommandContext(t.Context(), program, "--version").Output()
	must(t, err)
	if want := "restate-server " + pin; !strings.HasPrefix(string(out), want) {
		t.Errorf("%s is %q, the pin is %s: run `make setup`", program, out, pin)
	}
}
