// Sends a start and a stop to Sampler in one batch, until each has a final answer.
//
//	SAMPLER_URL=http://localhost:7070 [SAMPLER_TOKEN=…] go run send.go INSTANCE
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

const hour = int64(3_600_000)

// Target names the customer and the resource.
type Target struct {
	OrganizationID     string `json:"organization_id"`
	SpaceID            string `json:"space_id"`
	ConsumerID         string `json:"consumer_id"`
	ResourceID         string `json:"resource_id"`
	PlanID             string `json:"plan_id"`
	ResourceInstanceID string `json:"resource_instance_id"`
}

// Measure is how much of something there is for as long as the usage lasts.
type Measure struct {
	Measure  string  `json:"measure"`
	Quantity float64 `json:"quantity"`
}

// Event is a start or a stop.
type Event struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Timestamp int64  `json:"timestamp"`
	Target
	MeasuredUsage []Measure `json:"measured_usage,omitempty"`
}

// Answer says what became of each event of a batch.
type Answer struct {
	Refused int `json:"refused"`
	Failed  int `json:"failed"`
	Results []struct {
		Index      int    `json:"index"`
		Status     int    `json:"status"`
		Span       string `json:"span"`
		RetryAfter int    `json:"retry_after"`
		Problem    struct {
			Type string `json:"type"`
		} `json:"problem"`
	} `json:"results"`
}

// eventsOf makes the events of the last full hour, so that running this twice within an hour is a
// repeat. A broker stores events in its own database before it sends them: a repeat sends the same.
func eventsOf(instance string) []Event {
	ended := time.Now().UnixMilli() / hour * hour
	target := Target{
		OrganizationID: "org-1", SpaceID: "space-1", ConsumerID: "service:" + instance,
		ResourceID: "postgres", PlanID: "large", ResourceInstanceID: instance,
	}
	began := ended - hour
	return []Event{
		{
			Type: "start", ID: fmt.Sprintf("start-%d", began), Timestamp: began, Target: target,
			MeasuredUsage: []Measure{{Measure: "memory", Quantity: 512}},
		},
		{Type: "stop", ID: fmt.Sprintf("stop-%d", ended), Timestamp: ended, Target: target},
	}
}

// post posts a batch. The answer is nil if nothing says what became of each event; the error is one
// that a repeat would meet, too.
func post(client *http.Client, url string, events []Event) (*Answer, error) {
	body, err := json.Marshal(events)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest(http.MethodPost, url+"/v1/events", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if token := os.Getenv("SAMPLER_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return nil, nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return nil, nil
	}
	if response.StatusCode != http.StatusOK {
		problem := fmt.Errorf("%s: %s", response.Status, text)
		if code := response.StatusCode; code == 408 || code == 429 || code >= 500 {
			fmt.Fprintln(os.Stderr, problem)
			return nil, nil
		}
		return nil, problem
	}
	answer := new(Answer)
	err = json.Unmarshal(text, answer)
	if err == nil && len(answer.Results) != len(events) {
		err = fmt.Errorf("the answer does not say what became of each event")
	}
	if err != nil {
		// It may be that of a router on the way.
		fmt.Fprintln(os.Stderr, err)
		return nil, nil
	}
	return answer, nil
}

// send sends events until each is kept (201) or refused (4xx); it says whether all are kept.
func send(client *http.Client, url string, events []Event) (bool, error) {
	for pause := 1; pause <= 60; pause *= 2 {
		answer, err := post(client, url, events)
		if err != nil {
			return false, err
		}
		wait := pause
		if answer != nil {
			for _, result := range answer.Results {
				fmt.Printf("%d: %d %s%s\n", result.Index, result.Status, result.Span, result.Problem.Type)
				if result.RetryAfter > wait {
					wait = result.RetryAfter
				}
			}
			if answer.Failed == 0 {
				return answer.Refused == 0, nil
			}
		}
		time.Sleep(time.Duration(wait) * time.Second)
	}
	return false, fmt.Errorf("no final answer: send the same events again later")
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: send INSTANCE")
		os.Exit(2)
	}
	url := os.Getenv("SAMPLER_URL")
	if url == "" {
		url = "http://localhost:7070"
	}
	client := &http.Client{Timeout: time.Minute}
	kept, err := send(client, url, eventsOf(os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !kept {
		os.Exit(1)
	}
}
