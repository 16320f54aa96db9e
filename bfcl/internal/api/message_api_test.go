package api

import "testing"

func TestMessageIDsAreDrawnOnSuccessOnly(t *testing.T) {
	p := start(t, "MessageAPI", "")
	p.want(`{"login_status": false}`, "message_get_login_status")
	p.want(`{"error": "No user is currently logged in."}`, "send_message", "USR002", "x")
	p.want(`{"login_status": false, "message": "User ID 'USR099' not found."}`, "message_login", "USR099")
	p.want(`{"login_status": true, "message": "User 'USR001' logged in successfully."}`, "message_login", "USR001")
	p.want(`{"sent_status": true, "message_id": {"new_id": 67410}, "message": "Message sent to 'USR002' successfully."}`, "send_message", "USR002", "one")
	p.want(`{"error": "Receiver ID 'USR123' not found."}`, "send_message", "USR123", "no")
	p.want(`{"sent_status": true, "message_id": {"new_id": 41772}, "message": "Message sent to 'USR003' successfully."}`, "send_message", "USR003", "two")
	p.want(`{"results": [{"receiver_id": "USR002", "message": "My name is Alice. I want to connect."}]}`, "search_messages", "ALICE")
	p.want(`{"stats": {"received_count": 5, "total_contacts": 3}}`, "get_message_stats")
	p.want(`{"user_list": ["Alice", "Bob", "Catherine", "Daniel"]}`, "list_users")
	p.want(`{"user_id": "USR002"}`, "get_user_id", "Bob")
	p.want(`{"error": "User 'bob' not found in the workspace."}`, "get_user_id", "bob")
}

func TestDeleteRemovesTheFirstMessageEqualToTheLatest(t *testing.T) {
	p := start(t, "MessageAPI", `{"current_user": "USR001", "inbox": [{"USR002": "same"}, {"USR003": "mid"}, {"USR002": "same"}]}`)
	p.want(`{"deleted_status": true, "receiver_id": "USR002", "message": "Receiver USR002's latest message deleted successfully."}`, "delete_message", "USR002")
	p.want(`{"messages": {"USR003": ["mid"], "USR002": ["same"]}}`, "view_messages_sent")
	p.want(`{"error": "Receiver ID None not found."}`, "delete_message", nil)
}

func TestContactCountAdvancesOnACollision(t *testing.T) {
	p := start(t, "MessageAPI", `{"user_map": {"A": "USR001", "B": "USR003"}, "user_count": 2}`)
	p.want(`{"error": "User ID 'USR003' already exists."}`, "add_contact", "C")
	p.want(`{"added_status": true, "user_id": "USR004", "message": "Contact 'C' added successfully."}`, "add_contact", "C")
	p.want(`{"error": "User name 'C' already exists."}`, "add_contact", "C")
}

func TestMessagesThatAreNotText(t *testing.T) {
	p := start(t, "MessageAPI", `{"current_user": "USR001", "inbox": [{"USR002": ["listed"]}]}`)
	p.want(`AttributeError: 'list' object has no attribute 'lower'`, "search_messages", "x")
	p.want(`{"messages": {"USR002": [["listed"]]}}`, "view_messages_sent")
	p = start(t, "MessageAPI", `{"current_user": "USR001", "inbox": [{}]}`)
	p.want(`IndexError: list index out of range`, "view_messages_sent")
}

func TestZeroPadded(t *testing.T) {
	for in, want := range map[string]string{"5": "005", "1234": "1234", "-1": "-01", "+": "+00", "": "000", "é": "00é"} {
		if got := zeroPadded(in, 3); got != want {
			t.Errorf("zeroPadded(%q, 3): got %q, want %q", in, got, want)
		}
	}
}
