package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"
)

func composeProject(t *testing.T) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join(root, "deploy/compose/compose.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	project, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// Compose reads the file. Published ports are on loopback, mounted files exist, and our programs accept their options.
func TestCompose(t *testing.T) {
	project := composeProject(t)
	secrets := composeSecrets(t)
	nodes := make(map[string]int) // by region
	for name, service := range project.Services {
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %d is published on %q", name, port.Target, port.HostIP)
			}
		}
		if service.Privileged || !slices.Contains(service.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: may gain privileges", name)
		}
		for _, volume := range service.Volumes {
			if _, err := os.Stat(volume.Source); volume.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, secret := range service.Secrets {
			if _, err := os.Stat(filepath.Join(secrets, secret.Source)); err != nil {
				t.Errorf("%s: secrets.sh does not make it: %v", name, err)
			}
		}
		if !strings.HasPrefix(service.Image, "weir") {
			if _, tag, _ := strings.Cut(service.Image, ":"); strings.Count(tag, ".") != 2 {
				t.Errorf("%s: %s is not a version", name, service.Image)
			}
			continue
		}
		env := make(map[string]string)
		for variable, value := range service.Environment {
			env[variable] = *value
			if path, ok := strings.CutPrefix(*value, "/run/secrets/"); ok && !slices.ContainsFunc(service.Secrets, func(s types.ServiceSecretConfig) bool { return s.Source == path }) {
				t.Errorf("%s: %s is a secret that it does not have", name, *value)
			}
		}
		checkProgram(t, name, service.Image, nil, env, secrets)
		if service.Build.Target != service.Image || !service.ReadOnly || !slices.Contains(service.CapDrop, "ALL") {
			t.Errorf("%s: target %s of %s, read-only %v, drops %v", name, service.Build.Target, service.Image, service.ReadOnly, service.CapDrop)
		}
		if service.Image == "weir-node" {
			nodes[env["WEIR_REGION"]]++
		}
	}
	if nodes["eu"] != 2 || nodes["us"] != 2 || len(nodes) != 2 {
		t.Errorf("nodes by region: %v, want two in each of eu and us", nodes)
	}
	for _, region := range []string{"redis-eu", "redis-us"} {
		if !slices.Contains(project.Services[region].Command, "noeviction") {
			t.Errorf("%s may evict counts", region)
		}
	}
	if pin := read(t, filepath.Join(root, "restate/server/package.json")); !strings.Contains(string(pin), `restate-server": "`+strings.Split(project.Services["restate"].Image, ":")[1]+`"`) {
		t.Errorf("%s is not the version that the tests run", project.Services["restate"].Image)
	}
}

// weirctl doctor looks at every region's Redis, from the network that weir-control is in.
func TestComposeControlReachesEveryRedis(t *testing.T) {
	project := composeProject(t)
	networks := project.Services["restate"].Networks // weir-control's, by its network_mode
	var urls []string
	for _, region := range []string{"eu", "us"} {
		urls = append(urls, region+"=redis://redis-"+region+":6379")
		if _, ok := networks[region]; !ok {
			t.Errorf("weir-control is not in the network of redis-%s", region)
		}
	}
	set := project.Services["weir-control"].Environment["WEIR_REDIS_URL"]
	if set == nil || *set != strings.Join(urls, ";") {
		t.Errorf("WEIR_REDIS_URL is %v, want %v", set, urls)
	}
}

// composeSecrets runs secrets.sh on a copy, twice: the second time changes nothing.
func composeSecrets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "secrets.sh")
	if err := os.WriteFile(script, read(t, filepath.Join(root, "deploy/compose/secrets.sh")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, made := range []int{13, 0} {
		out, err := exec.CommandContext(t.Context(), "/bin/sh", script).CombinedOutput()
		if err != nil || strings.Count(string(out), "made ") != made {
			t.Fatalf("secrets.sh: %v, want %d secrets\n%s", err, made, out)
		}
	}
	return filepath.Join(dir, "secrets")
}

// Prometheus and Grafana accept their files. Every target is a service, and the rules rely on every job.
func TestComposeObserves(t *testing.T) {
	project := composeProject(t)
	config := filepath.Join(root, "deploy/compose/prometheus.yml")
	if out, err := exec.CommandContext(t.Context(), promtool(t), "check", "config", "--syntax-only", config).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	var prometheus struct {
		Scrapes []struct {
			Job    string `json:"job_name"`
			Static []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal(read(t, config), &prometheus); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, scrape := range prometheus.Scrapes {
		names = append(names, scrape.Job)
		for _, target := range scrape.Static[0].Targets {
			host, _, _ := strings.Cut(target, ":")
			if _, err := project.GetService(host); err != nil {
				t.Errorf("%s: %s: %v", scrape.Job, target, err)
			}
		}
	}
	if !slices.Equal(names, jobs) {
		t.Errorf("jobs are %v, want %v", names, jobs)
	}
	var sources struct {
		APIVersion  int `json:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, URL string
			IsDefault            bool
			JSONData             map[string]string `json:"jsonData"`
		} `json:"datasources"`
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(root, "deploy/compose/grafana/datasources.yaml")), &sources); err != nil || len(sources.Datasources) != 1 {
		t.Errorf("data sources: %+v, %v", sources, err)
	}
	var providers struct {
		APIVersion int `json:"apiVersion"`
		Providers  []struct {
			Name, Folder, Type string
			Options            struct{ Path string }
		} `json:"providers"`
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(root, "deploy/compose/grafana/dashboards.yaml")), &providers); err != nil || len(providers.Providers) != 1 {
		t.Fatalf("dashboards: %+v, %v", providers, err)
	}
	if !slices.ContainsFunc(project.Services["grafana"].Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Target == providers.Providers[0].Options.Path && strings.HasSuffix(v.Source, "deploy/grafana")
	}) {
		t.Errorf("deploy/grafana is not mounted at %s", providers.Providers[0].Options.Path)
	}
}
