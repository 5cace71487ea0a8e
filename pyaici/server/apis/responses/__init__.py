"""The API of Open Responses, which is OpenAI's Responses API: answers made of items, and stored turns."""
