//go:build linux

package clients_test

// javas are the clients of the Java platform itself.
func javas() []client {
	return []client{
		{name: "Java HttpClient", script: "java Get.java", prints: []string{"HTTP_2 200"}, refusal: "403 sallyport: host_not_allowed", files: map[string]string{"Get.java": `
import java.net.*;
import java.net.http.*;
class Get {
  public static void main(String[] a) throws Exception {
    HttpClient c = HttpClient.newHttpClient();
    HttpRequest ok = HttpRequest.newBuilder(new URI("https://HOST/path")).header("Authorization", "Bearer " + System.getenv("API_KEY")).build();
    HttpResponse<String> r = c.send(ok, HttpResponse.BodyHandlers.ofString());
    System.out.println(r.version() + " " + r.statusCode());
    r = c.send(HttpRequest.newBuilder(new URI("https://BLOCKED/path")).build(), HttpResponse.BodyHandlers.ofString());
    System.out.println(r.statusCode() + " " + r.body());
  }
}
`}},
		{name: "Java HttpURLConnection", script: "java Get.java", prints: []string{"200"}, refusal: "403 sallyport: host_not_allowed", files: map[string]string{"Get.java": `
import java.net.*;
class Get {
  public static void main(String[] a) throws Exception {
    HttpURLConnection c = (HttpURLConnection) new URI("https://HOST/path").toURL().openConnection();
    c.setRequestProperty("Authorization", "Bearer " + System.getenv("API_KEY"));
    System.out.println(c.getResponseCode());
    c = (HttpURLConnection) new URI("https://BLOCKED/path").toURL().openConnection();
    System.out.println(c.getResponseCode() + " " + new String(c.getErrorStream().readAllBytes()));
  }
}
`}},
	}
}
