// Package kubernetes holds the manifests of the examples against the types of
// the API itself, strictly: a field that does not exist, or is in the wrong
// place, is an error. It is a module of its own, so that the gateway does not
// depend on Kubernetes.
package kubernetes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

const manifests = "../../examples/kubernetes"

// decode reads every document of a manifest.
func decode(text []byte) ([]runtime.Object, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, networkingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	var out []runtime.Object
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		o, _, err := decoder.Decode(doc, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%.80q: %w", doc, err)
		}
		out = append(out, o)
	}
	return out, nil
}

func read(t *testing.T, name string) []runtime.Object {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(manifests, name))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode(b)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return objects
}

func TestManifestsAreOfTheAPI(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("manifests: %q %v", files, err)
	}
	for _, f := range files {
		if len(read(t, filepath.Base(f))) == 0 {
			t.Errorf("%s is empty", f)
		}
	}
}

// TestDecodingIsStrict: a slip of the pen is found.
func TestDecodingIsStrict(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(manifests, "sidecar.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, slip := range [][2]string{{"restartPolicy: Always", "restartpolicy: Always"}, {"runAsNonRoot: true", "runAsNonRoot: 1"}, {"kind: Pod", "kind: Pot"}} {
		bad := strings.Replace(string(b), slip[0], slip[1], 1)
		if bad == string(b) {
			t.Errorf("no %q in the manifest", slip[0])
		}
		if _, err := decode([]byte(bad)); err == nil {
			t.Errorf("%q was taken", slip[1])
		}
	}
}

// find returns the one object of a type.
func find[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	for _, o := range objects {
		if v, ok := o.(T); ok {
			return v
		}
	}
	var none T
	t.Fatalf("no %T", none)
	return none
}

// TestSidecarHoldsTheOthers: what the guarantees of the sidecar rest on.
func TestSidecarHoldsTheOthers(t *testing.T) {
	pod := find[*corev1.Pod](t, read(t, "sidecar.yaml")).Spec
	at := slices.IndexFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == "gateway" })
	if at < 0 {
		t.Fatal("no sidecar")
	}
	gateway := pod.InitContainers[at]
	if gateway.RestartPolicy == nil || *gateway.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Error("the gateway is not a native sidecar: others would start without it, or it would end")
	}
	if gateway.StartupProbe == nil {
		t.Error("others start before the gateway is ready")
	}
	c := gateway.SecurityContext
	if c.RunAsGroup == nil || *c.RunAsGroup == 0 {
		t.Error("the gateway has no group of its own")
	}
	if len(c.Capabilities.Drop) != 1 || c.Capabilities.Drop[0] != "ALL" {
		t.Errorf("the gateway keeps capabilities: %v", c.Capabilities)
	}
	if pod.HostNetwork || pod.ShareProcessNamespace != nil && *pod.ShareProcessNamespace {
		t.Error("the pod shares more than it may")
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("the pod has a token of the cluster")
	}
	for _, other := range pod.Containers {
		s := other.SecurityContext
		switch {
		case s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot:
			t.Errorf("%s may be root", other.Name)
		case s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
			t.Errorf("%s may gain privileges", other.Name)
		case s.Capabilities == nil || len(s.Capabilities.Add) > 0 || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL":
			t.Errorf("%s keeps capabilities, with which it could become the gateway's user", other.Name)
		case s.RunAsGroup == nil || *s.RunAsGroup == *c.RunAsGroup:
			t.Errorf("%s may have the gateway's group", other.Name)
		}
		for _, v := range other.VolumeMounts {
			if !v.ReadOnly && v.Name != "work" {
				t.Errorf("%s can write to %s", other.Name, v.Name)
			}
		}
	}
}

// TestNodeGatewayFits: the selector, labels and tolerations agree.
func TestNodeGatewayFits(t *testing.T) {
	set := find[*appsv1.DaemonSet](t, read(t, "node.yaml"))
	for k, v := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[k] != v {
			t.Errorf("label %s is %q, selected is %q", k, set.Spec.Template.Labels[k], v)
		}
	}
	if !set.Spec.Template.Spec.HostNetwork {
		t.Error("the gateway is not where the pods' links end")
	}
	if set.GroupVersionKind() != (schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}) {
		t.Errorf("kind %v", set.GroupVersionKind())
	}
}
