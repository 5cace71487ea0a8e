"""OpenAI's API: completions and chats, with controllers in addition."""
