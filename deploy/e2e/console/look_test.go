package console

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// looks are the screens and color schemes in which pages are checked.
var looks = map[string]struct {
	scheme     string
	wide, high int
	phone      bool
}{
	"light": {"light", 1280, 900, false},
	"wide":  {"light", 1440, 900, false},
	"dark":  {"dark", 1280, 900, false},
	"phone": {"light", 390, 844, true},
	"night": {"dark", 390, 844, true},
}

// fillOverride fills in the form of an override, and requests its review.
const fillOverride = `(() => {
	const form = document.querySelector("#override form");
	for (const [name, value] of Object.entries({ pattern: "user_*", limit: "9000", actor: "ann", reason: "a contract" })) form.elements[name].value = value;
	form.querySelector("[value=review]").click();
})()`

// Nothing overlaps, is cut off or has no text, on a desktop and on a phone, in light and dark: of a large fleet, of an
// empty fleet, and of a fleet whose dependencies are down. browser/look.js has the checks; pictures are left in
// out/screenshots.
func TestEveryPageLooksRight(t *testing.T) {
	look, err := os.ReadFile("browser/look.js")
	if err != nil {
		t.Fatal(err)
	}
	b := browse(t)
	page := b.open("about:blank")
	for state, seen := range map[string][]string{"large": {"light", "dark", "wide", "phone", "night"}, "empty": {"light", "night"}, "down": {"light", "night"}} {
		url := serve(t, state)
		for _, name := range seen {
			on := looks[name]
			b.do(page, "Emulation.setDeviceMetricsOverride", map[string]any{"width": on.wide, "height": on.high, "deviceScaleFactor": 1, "mobile": on.phone}, nil)
			b.do(page, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": on.scheme}}}, nil)
			dir := filepath.Join(shots(t), state, name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for at, path := range everyLargePage {
				b.navigate(page, url+path)
				b.look(page, string(look), state+", "+name+", "+at)
				b.picture(page, filepath.Join(dir, at+".png"))
				var forms int
				if err := b.ask(page, `[...document.querySelectorAll("main details:not([open])")].slice(0, 8).map((d) => { d.open = true; }).length`, &forms); err != nil {
					t.Fatal(err)
				}
				if forms > 0 {
					b.look(page, string(look), state+", "+name+", "+at+" with its forms open")
					b.picture(page, filepath.Join(dir, at+"-open.png"))
				}
			}
			if state != "down" {
				b.navigate(page, url+everyLargePage["namespace"])
				if err := b.ask(page, fillOverride, nil); err != nil {
					t.Fatal(err)
				}
				b.until(page, `document.getElementById("estimate") !== null && document.readyState === "complete"`)
				b.look(page, string(look), state+", "+name+", the review of an override")
				b.picture(page, filepath.Join(dir, "override-review.png"))
			}
		}
	}
}

// A look finds each fault that it checks for, and nothing on a page without faults.
func TestALookFindsFaults(t *testing.T) {
	look, err := os.ReadFile("browser/look.js")
	if err != nil {
		t.Fatal(err)
	}
	b := browse(t)
	page := b.open("about:blank")
	for content, want := range map[string]string{
		`<p>Everything is as it should be here.</p><button>Go</button>`:                                                                                                                          "",
		`<p>Wider than any screen is.</p><div style="width:5000px;height:1px"></div>`:                                                                                                            "the page is 5",
		`<p style="color:#999">Letters that are too light.</p>`:                                                                                                                                  "contrast 2.8",
		`<p style="background:#000">Dark letters on a dark ground.</p>`:                                                                                                                          "contrast 1.0",
		`<p>One line of text lies here.</p><p style="margin-top:-2.2em">And another one on it.</p>`:                                                                                              "overlap",
		`<p>A button is too small:</p><button style="width:30px;white-space:nowrap;overflow:hidden">Start the rollout</button>`:                                                                  "px of text in",
		`<p>A drawing that is scaled down:</p><svg viewBox="0 0 600 60" width="200"><text y="20" font-size="12">tiny</text></svg>`:                                                               "px small",
		`<p>A drawing that is too narrow:</p><svg viewBox="0 0 40 40" width="40"><text y="20" font-size="16">more words</text></svg>`:                                                            "cut by its drawing",
		`<p>Out of it all.</p><p style="position:absolute;left:-60px">Half of this is not there.</p>`:                                                                                            "out of sight",
		`<p>An action at the end of a wide row.</p><div class="scroll" style="overflow-x:auto"><table><tr><td style="min-width:5000px">k</td><td><a href="#">Delete</a></td></tr></table></div>`: "out of reach",
		`<p>Hm.</p>`: "says nothing",
	} {
		if err := b.ask(page, `document.body.innerHTML = "<main>" + `+quoted(content)+` + "</main>"; true`, nil); err != nil {
			t.Fatal(err)
		}
		var wrong []string
		if err := b.ask(page, string(look), &wrong); err != nil {
			t.Fatal(err)
		}
		if words := strings.Join(wrong, "; "); want == "" && words != "" || !strings.Contains(words, want) {
			t.Errorf("%s: %q, want %q", content, words, want)
		}
	}
}

func (b *devtools) look(page, expression, where string) {
	b.t.Helper()
	var wrong []string
	if err := b.ask(page, expression, &wrong); err != nil {
		b.t.Fatal(err)
	}
	for _, words := range wrong {
		b.t.Errorf("%s: %s", where, words)
	}
}

// picture leaves a picture of the whole page, for people to look at.
func (b *devtools) picture(page, file string) {
	b.t.Helper()
	var size struct{ CSSContentSize map[string]float64 }
	b.do(page, "Page.getLayoutMetrics", nil, &size)
	var shot struct{ Data string }
	clip := map[string]any{"x": 0, "y": 0, "width": size.CSSContentSize["width"], "height": min(9000, size.CSSContentSize["height"]), "scale": 1}
	b.do(page, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true, "clip": clip}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
