"""The API of OpenAI: completions and chats, with controllers besides."""
