"""The judge as a tool that other programs call: kept warm, over MCP, with reproducers and words for its verdicts."""
